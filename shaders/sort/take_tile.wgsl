{#- The first lines of the main functions of sort/scatter_digits.wgsl.
    out: `index`, the number of the tile among those of all rows; `tile`; `step` -#}
{% if kernel %}
    let index = ticket_of(invocation, workgroup, grid);
    if (index >= params.tiles) {
{% if scheduler == "serial" %}
        leave();
{% endif %}
        return;
    }
    let step = plan.steps[params.step];
{% else %}
    let index = workgroup.x + workgroup.y * grid.x;
    if (index >= params.tiles) {
        return;
    }
    let step = steps[params.step];
{% endif %}
    let tile = tile_at(index);
