{#- Combine the elements of each label of each section.
    in:  the sources, the labels; if each invocation has a section, a table without carries
    out: the table: for each section and label, the combination of its elements -#}
{% include "groups/table.wgsl" %}
{% include "groups/" ~ kernel.walk ~ ".wgsl" %}
