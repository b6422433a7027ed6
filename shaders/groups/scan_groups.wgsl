{#- Combine each element with the earlier elements of its label in its row.
    in:  the sources, the labels, the initial values; the table: for each stretch and label, the combination of what is
         before the stretch
    out: the destinations -#}
{% include "groups/table.wgsl" %}
{% include "groups/" ~ kernel.walk ~ ".wgsl" %}
