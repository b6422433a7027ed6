{#- Load a chunk from storage as items. -#}
{% from "scan/chunk_items.wgsl" import chunk_items with context %}
fn load_chunk(index: u32) -> Chunk {
{{ chunk_items() -}}
}
