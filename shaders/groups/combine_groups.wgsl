{#- Combine the elements of each label of each stretch.
    in:  the sources, the labels; if each invocation has a stretch, a table without carries
    out: the table: for each stretch and label, the combination of its elements -#}
{% include "groups/table.wgsl" %}
{% include "groups/" ~ kernel.walk ~ ".wgsl" %}
