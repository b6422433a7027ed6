{#- A test build: schedulers that gpuscan may meet, played by the workgroups themselves. Every wait is bounded.
    random: subgroups idle at random before they load and before they store, and workgroups before they post. All lanes
            of a subgroup idle for the same time, since lanes that diverge may not vote or shuffle
    serial: a workgroup takes its ticket when the one before it has finished. Look-ahead's first
            workgroup hands the fold over. A workgroup that ends without a result keeps the lock, and the others wait
            out its bound
    bursts: a workgroup continues when all tickets of its burst are taken, so that they begin together
    Drivers that end loops run on CPUs, whose workgroups may not loop for long. -#}
// ----- Scheduler
{% if kernel.test_build.scheduler == "random" %}
const LOADS = 0u;  // points to idle at
const POSTS = 1u;
const STORES = 2u;
const LONGEST_DELAY = {{ 64 if kernel.target.driver_ends_loops else 1024 }}u;  // looks at the state
const LONGEST_POST_DELAY = {{ 1024 if kernel.target.driver_ends_loops else 4096 }}u;  // longer than a fallback waits

// Idle with a probability of one in four.
fn idle(point: u32, tile: u32, who: u32, longest: u32) {
    let seed = (params.epoch * 3u + point) * 747796405u + tile * WORKGROUP_SIZE + who;
    let mixed = ((seed >> ((seed >> 28u) + 4u)) ^ seed) * 277803737u;
    let chance = ((mixed >> 22u) ^ mixed) * 2654435769u;
    let spins = select(0u, (chance >> 8u) % longest, chance >> 30u == 0u);
    for (var spin = 0u; spin < spins; spin++) {
        if ({{ "subgroupAny(given_up())" if kernel.subgroups else "given_up()" }}) {
            break;
        }
    }
}
{% else %}
const MAX_LOOKS = {{ "1u << 12u" if kernel.target.driver_ends_loops else "1u << 18u" }};
{% endif %}
{% if kernel.test_build.scheduler == "serial" %}
const BUSY = 0x80000000u;  // of the ticket counter: a workgroup is at work

var<workgroup> done: atomic<u32>;  // invocations

fn enter() {
    atomicStore(&done, 0u);  // not every driver begins with zero
    for (var look = 0u; look < MAX_LOOKS; look++) {
        if ((atomicOr(&state.ticket, BUSY) & BUSY) == 0u) {
            break;
        }
        if (given_up()) {
            break;
        }
    }
}

// The last invocation that has stored lets the next workgroup in. (A barrier would require uniform control flow.)
fn leave() {
    if (atomicAdd(&done, 1u) == WORKGROUP_SIZE - 1u) {
        atomicAnd(&state.ticket, ~BUSY);
    }
}
{% endif %}
{% if kernel.test_build.scheduler == "bursts" %}
const BURST = {{ 2 if kernel.target.driver_ends_loops else 16 }}u;  // tickets; a CPU runs few workgroups at a time

fn await_burst(own: u32) {
    let last = own / BURST * BURST + BURST;
    for (var look = 0u; look < MAX_LOOKS; look++) {
        let out = {{ peek("ticket") }};
        if ((out >= last) | (out <= own)) {  // the last ticket of all leaves the counter at zero
            break;
        }
    }
}
{% endif %}
