{#- Combine the chunks at the indices from `begin` to before `end`, from left to right, as `total`. Of no indices the
    total is arbitrary. The block gives the chunk at the index that it gets. `stride` is from one index to the next.
    Some are loaded at a time, so that their loads are under way together. -#}
{% macro combine_between(stride="1u") %}
{% set loads = kernel.loads_at_once %}
{% if loads == 1 %}
    var total = {{ caller("begin") }};
    for (var next = begin + {{ stride }}; next < end; next += {{ stride }}) {
        total = join_chunks(total, {{ caller("next") }});
    }
{% else %}
    var total: Chunk;
    var next = begin;
    for (; next + {{ loads - 1 }}u * {{ stride }} < end; next += {{ loads }}u * {{ stride }}) {
{% for i in range(loads) %}
        let part{{ i }} = {{ caller("next + %du * %s" % (i, stride)) }};
{% endfor %}
        if (next == begin) {
            total = part0;
        } else {
            total = join_chunks(total, part0);
        }
{% for i in range(1, loads) %}
        total = join_chunks(total, part{{ i }});
{% endfor %}
    }
    if (next < end) {
{% for i in range(loads - 1) %}
        let part{{ i }} = {{ caller("min(next + %du * %s, end - 1u)" % (i, stride)) }};
{% endfor %}
        total = pick_chunk(next == begin, part0, join_chunks(total, part0));
{% for i in range(1, loads - 1) %}
        total = pick_chunk(next + {{ i }}u * {{ stride }} < end, join_chunks(total, part{{ i }}), total);
{% endfor %}
    }
{% endif %}
{% endmacro %}
