{#- The order in which workgroups take tiles, and the reports of a run in which tiles wait for each other.
    State: the header of shared/tile_state.wgsl. -#}
fn report_timeout() {
    atomicStore(&state.status, params.epoch);
}

fn given_up() -> bool {
    return {{ peek("status") }} == params.epoch;
}
{% if kernel.test_build.scheduler %}

{% include "shared/hostile_scheduler.wgsl" %}
{% endif %}

{% if kernel.tiles_by_number %}
// The probe saw workgroups start in the order of their numbers, so a tile waits for tiles that already run. Fallback does
// not rely on it.
fn ticket_of(invocation: u32, workgroup: vec3<u32>, grid: vec3<u32>) -> u32 {
    return (workgroup.z * grid.y + workgroup.y) * grid.x + workgroup.x;
}
{% else %}
var<workgroup> ticket: u32;

// Tickets number the tiles in the order in which workgroups start, so a tile waits only for tiles that already run.
// The last ticket leaves the counter at zero for the next run.
fn ticket_of(invocation: u32, workgroup: vec3<u32>, grid: vec3<u32>) -> u32 {
    if (invocation == 0u) {
{% if kernel.test_build.scheduler == "serial" %}
        enter();
        ticket = atomicAdd(&state.ticket, 1u) & ~BUSY;
{% else %}
        ticket = atomicAdd(&state.ticket, 1u);
{% endif %}
        if (ticket == grid.x * grid.y * grid.z - 1u) {
            atomicStore(&state.ticket, 0u);
        }
{% if kernel.test_build.scheduler == "bursts" %}
        await_burst(ticket);
{% endif %}
    }
    return workgroupUniformLoad(&ticket);
}
{% endif %}
