{#- A function that takes time between two polls, for adapters that compute on the CPU. -#}
{% set pauses = kernel.wait_policy.pauses if kernel is defined else pauses %}
{% if pauses %}
// Return a useless number after a while. A CPU adapter polls faster than the system gives the core to another
// workgroup, and llvmpipe ends every loop once all loops of an invocation have made 65,535 iterations together.
fn pause(spin: u32) -> u32 {
    var number = 0xfffffff0u - spin;
{% for _ in range(pauses) %}
    number = 0xfffffff1u / ((number & 0xffu) | 1u);
{% endfor %}
    return number;
}

{% endif %}
