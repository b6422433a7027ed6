{#- The results of the elements, as if the section of each were the whole row.
    Values: kernel.item_words. -#}
{% set words = kernel.item_words %}
{% set vector = {1: "u32", 2: "vec2<u32>", 4: "vec4<u32>"}.get(words, "Words") %}
@group(0) @binding({{ kernel.binding_of("locals") }}) var<storage, {{ kernel.locals_access }}> locals: array<{{ vector }}>;

{% if kernel.locals_access == "read_write" %}
fn store_local(at: u32, words: Words) {
{% if vector == "Words" %}
    locals[at] = words;
{% else %}
    locals[at] = {{ vector }}({% for word in range(words) %}words[{{ word }}]{{ ", " if not loop.last }}{% endfor %});
{% endif %}
}
{% endif %}
{% if kernel.stage != "combine_tiles" %}
fn load_local(at: u32) -> Item {
{% if vector == "Words" %}
    return item_from_words(locals[at]);
{% else %}
    let words = locals[at];
    return item_from_words(Words({% for word in range(words) %}words{{ "[%d]" % word if words > 1 }}{{ ", " if not loop.last }}{% endfor %}));
{% endif %}
}
{% endif %}
