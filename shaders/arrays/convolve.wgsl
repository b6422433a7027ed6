{#- Convolve rows with a few numbers: result[t] = first[t] + taps[0] source[t] + taps[1] source[t-1] + …, where samples
    before a row's first are 0. Each invocation computes one sample.
    in:  source: samples (outer, length, inner) from number source_base on, taps, first: (outer, firsts, inner)
    out: result: the samples from number base on
    Values: workgroup_size; number: the type of the samples, f32 or f64. -#}
struct Call {
    count: u32,  // of samples to compute
    base: u32,
    source_base: u32,
    length: u32,  // of a row
    inner: u32,  // rows side by side in memory
    taps: u32,
    firsts: u32,  // samples of each row that something is added to
    unused: u32,
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> source: array<{{ number }}>;
@group(0) @binding(2) var<storage, read> taps: array<{{ number }}>;
@group(0) @binding(3) var<storage, read> first: array<{{ number }}>;
@group(0) @binding(4) var<storage, read_write> result: array<{{ number }}>;

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let index = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (index >= call.count) {
        return;
    }
    let sample = call.base + index;
    let row = sample / call.inner;
    let time = row % call.length;
    var sum = {{ number }}();
    if (time < call.firsts) {
        sum = first[(row / call.length * call.firsts + time) * call.inner + sample % call.inner];
    }
    let used = min(call.taps, time + 1u);
    for (var i = 0u; i < used; i++) {
        sum += taps[i] * source[sample - i * call.inner - call.source_base];
    }
    result[index] = sum;
}
