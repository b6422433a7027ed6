{#- The first lines of the main functions of sort/scatter_digits.wgsl.
    out: `index`, the number of the tile among the tiles of all rows; `tile`; `step` -#}
{% from "shared/take_tile.wgsl" import take_ticket with context %}
    let step = {{ "plan.steps" if kernel else "steps" }}[params.step];
    if (step.is_needed == 0u) {
        return;
    }
{% if kernel %}
{{ take_ticket("index").rstrip() }}
    if (index >= params.tiles) {
{% if scheduler == "serial" %}
        leave();
{% endif %}
        return;
    }
{% else %}
    let index = workgroup.x + workgroup.y * grid.x;
    if (index >= params.tiles) {
        return;
    }
{% endif %}
    let tile = tile_at(index);
