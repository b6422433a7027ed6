{#- Chunks of several accesses, between storage and invocations: a subgroup's lie side by side there, and its lanes access
    neighbours, which is one cache line for all of them, not one for each. They exchange what is theirs through
    workgroup memory, in which chunks of an even number of vectors are spread over the banks. -#}
{% set vectors = text.sources[0].accesses %}
{% set place = "SUBGROUP_SIZE - 1u - lane" if kernel.reads_backwards else "lane" %}
var<workgroup> stage: array<{{ text.sources[0].vector }}, {{ kernel.exchange_vectors }}>;

fn slot(place: u32) -> u32 {
    return place{{ " + place / 8u" if vectors % 2 == 0 }};
}

// The invocation's own chunk, of what the lanes of its subgroup have loaded together.
fn from_storage(invocation: u32, loaded: Loaded) -> Loaded {
    let lane = invocation % SUBGROUP_SIZE;
    let begin = (invocation - lane) * {{ vectors }}u;
    let own = begin + ({{ place }}) * {{ vectors }}u;
{% for i in range(vectors) %}
    stage[slot(begin + {{ i }}u * SUBGROUP_SIZE + lane)] = loaded[{{ i }}];
{% endfor %}
    workgroupBarrier();
    let chunk = Loaded({% for i in range(vectors) %}stage[slot(own + {{ i }}u)]{{ ", " if not loop.last }}{% endfor %});
    workgroupBarrier();
    return chunk;
}
{% if kernel.destinations %}

// What the lane stores of the chunks of its subgroup.
fn to_storage(invocation: u32, chunk: Loaded) -> Loaded {
    let lane = invocation % SUBGROUP_SIZE;
    let begin = (invocation - lane) * {{ vectors }}u;
    let own = begin + ({{ place }}) * {{ vectors }}u;
{% for i in range(vectors) %}
    stage[slot(own + {{ i }}u)] = chunk[{{ i }}];
{% endfor %}
    workgroupBarrier();
    let stored = Loaded({% for i in range(vectors) %}stage[slot(begin + {{ i }}u * SUBGROUP_SIZE + lane)]{{ ", " if not loop.last }}{% endfor %});
    workgroupBarrier();
    return stored;
}
{% endif %}

