{#- What passes the time between two polls on a software adapter. -#}
{% if kernel.wait_policy.pauses %}
// A number that is no use, after a while. A software adapter polls faster than the system gives a waiting core to
// another workgroup, and llvmpipe leaves every loop once all loops of an invocation have made 65,535 turns together.
fn pause(spin: u32) -> u32 {
    var number = 0xfffffff0u - spin;
{% for _ in range(kernel.wait_policy.pauses) %}
    number = 0xfffffff1u / ((number & 0xffu) | 1u);
{% endfor %}
    return number;
}

{% endif %}
