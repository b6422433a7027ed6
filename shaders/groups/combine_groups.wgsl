{#- Combine the elements of each label of each stretch.
    in:  the sources, the labels; without subgroups, a table without carries
    out: the table: for each stretch and label, the combination of its elements -#}
{% include "groups/table.wgsl" %}
{% if kernel.subgroups %}
{% include "groups/walk_by_subgroups.wgsl" %}
{% else %}
{% include "groups/walk_by_invocations.wgsl" %}
{% endif %}
