{#- The language extensions of a shader, before all else. -#}
{% if kernel.target.enables_subgroups %}
{% if kernel.subgroups %}
enable subgroups;
{% endif %}
diagnostic(off, subgroup_uniformity);
{% endif %}
