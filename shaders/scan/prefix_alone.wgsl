{#- No prefix: the tile holds a whole row. -#}
{% include "scan/totals.wgsl" %}
