{#- The tickets with which workgroups take tiles, and the reports of a run in which tiles wait for each other.
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

var<workgroup> shared_ticket: u32;
