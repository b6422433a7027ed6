{#- Step 1 of a tile: load every chunk, so that all reads are under way together.
    out: `first`, the index of the first chunk; `loaded0`, `loaded1`, …, one for each step #}
    // 1. Load every chunk, so that all reads are under way together.
    let first = {{ first_of("at_hand" if kernel.reloads_after_help else "tile") }};
{% for step in range(kernel.tile.steps) %}
    let loaded{{ step }} = {{ "load_sources" if kernel.takes_steps else "load" if kernel.loads_words_first else "load_chunk" }}({{ place(step) }}{{ for_exchange }});
{% endfor %}
