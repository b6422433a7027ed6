{#- Combine each element with the earlier elements of its label in its row.
    in:  the sources, the labels, the initial values; the table: for each section and label, the combination of what is
         before the section
    out: the destinations -#}
{% include "groups/table.wgsl" %}
{% include "groups/" ~ kernel.walk ~ ".wgsl" %}
