{#- The prefix by look-back. A wait that exceeds its bound is reported, and the tile stores nothing. -#}
{% if kernel.wait_policy.at_once %}
{% include "scan/look_back_at_once.wgsl" %}
{% else %}
{% include "scan/single_pass.wgsl" %}
{% endif %}
