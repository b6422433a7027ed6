{#- Statements that give a workgroup its tile. -#}
{#- Take a tile where tiles wait for each other. `offset` is added to its number. State: shared/tickets.wgsl. -#}
{% macro take_ticket(name, offset="") %}
{% if kernel.tiles_by_number %}
    // The probe saw workgroups start in the order of their numbers, so a tile waits for tiles that already run.
    // Fallback does not rely on it.
    let {{ name }} = (workgroup.z * grid.y + workgroup.y) * grid.x + workgroup.x{{ offset }};
{% else %}
    // Tickets number the tiles in the order in which workgroups start, so a tile waits only for tiles that already run.
    // The last ticket leaves the counter at zero for the next run.
    if (invocation == 0u) {
{% if kernel.test_build.scheduler == "serial" %}
        enter();
        shared_ticket = atomicAdd(&state.ticket, 1u) & ~BUSY;
{% else %}
        shared_ticket = atomicAdd(&state.ticket, 1u);
{% endif %}
        if (shared_ticket == grid.x * grid.y * grid.z - 1u) {
            atomicStore(&state.ticket, 0u);
        }
{% if kernel.test_build.scheduler == "bursts" %}
        await_burst(shared_ticket);
{% endif %}
    }
    let {{ name }} = workgroupUniformLoad(&shared_ticket){{ offset }};
{% endif %}
{% endmacro %}
{#- Take a tile where no tile waits for another one. -#}
{% macro number_tile() %}
    let tile = {{ "params.tiles - 1u - " if kernel.last_tiles_first }}(workgroup.x + workgroup.y * grid.x);{{ "  // past the end it wraps, and stays past it" if kernel.last_tiles_first }}
{% endmacro %}
