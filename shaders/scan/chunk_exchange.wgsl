{#- Exchange chunks between the lanes of a subgroup. Several lanes load a chunk that takes several accesses.
    Neighbouring lanes load neighbouring vectors, so that one access of all lanes touches one cache line and not one for
    each lane. In workgroup memory, chunks of an even number of vectors have a gap after every eight, which spreads them
    over banks. -#}
{% set exchanged = (text.sources + text.destinations) | selectattr("exchanged") | list %}
{% if exchanged %}
{% set vectors = exchanged[0].accesses %}
{% set position = "SUBGROUP_SIZE - 1u - lane" if kernel.reads_backwards else "lane" %}
var<workgroup> stage: array<{{ exchanged[0].vector }}, {{ kernel.exchange_vectors }}>;
{% if not text.sources[0].exchanged %}
alias Exchanged = array<{{ exchanged[0].vector }}, {{ vectors }}>;  // a chunk of the results
{% endif %}

fn slot(position: u32) -> u32 {
    return position{{ " + position / 8u" if vectors % 2 == 0 }};
}

{% if text.sources[0].exchanged %}
// Return the invocation's own chunk from the vectors that the lanes of its subgroup have loaded.
fn from_storage(invocation: u32, loaded: Loaded) -> Loaded {
    let lane = invocation % SUBGROUP_SIZE;
    let begin = (invocation - lane) * {{ vectors }}u;
    let own = begin + ({{ position }}) * {{ vectors }}u;
{% for i in range(vectors) %}
    stage[slot(begin + {{ i }}u * SUBGROUP_SIZE + lane)] = loaded[{{ i }}];
{% endfor %}
    workgroupBarrier();
    let chunk = Loaded({% for i in range(vectors) %}stage[slot(own + {{ i }}u)]{{ ", " if not loop.last }}{% endfor %});
    workgroupBarrier();
    return chunk;
}
{% endif %}
{% if kernel.destinations and text.destinations[0].exchanged %}
{% set chunk_type = "Loaded" if text.sources[0].exchanged else "Exchanged" %}

// Return the vectors that this lane stores, from the chunks of its subgroup.
fn to_storage(invocation: u32, chunk: {{ chunk_type }}) -> {{ chunk_type }} {
    let lane = invocation % SUBGROUP_SIZE;
    let begin = (invocation - lane) * {{ vectors }}u;
    let own = begin + ({{ position }}) * {{ vectors }}u;
{% for i in range(vectors) %}
    stage[slot(own + {{ i }}u)] = chunk[{{ i }}];
{% endfor %}
    workgroupBarrier();
    let stored = {{ chunk_type }}({% for i in range(vectors) %}stage[slot(begin + {{ i }}u * SUBGROUP_SIZE + lane)]{{ ", " if not loop.last }}{% endfor %});
    workgroupBarrier();
    return stored;
}
{% endif %}
{% endif %}
