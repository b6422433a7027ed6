{#- Sets of lanes of a subgroup, as subgroupBallot gives them. -#}
fn count_bits(lanes: vec4<u32>) -> u32 {
    let counts = countOneBits(lanes);
    return counts.x + counts.y + counts.z + counts.w;
}

// Return the lanes with smaller numbers.
fn lanes_below(lane: u32) -> vec4<u32> {
    let bits = (1u << (lane % 32u)) - 1u;
    let word = vec4<u32>(lane / 32u);
    let numbers = vec4<u32>(0u, 1u, 2u, 3u);
    return select(select(vec4<u32>(0u), vec4<u32>(bits), numbers == word), vec4<u32>(0xffffffffu), numbers < word);
}

// Return the lowest of these lanes.
fn lowest_lane(lanes: vec4<u32>) -> u32 {
    var lane = 96u + firstTrailingBit(lanes.w);
    lane = select(lane, 64u + firstTrailingBit(lanes.z), lanes.z != 0u);
    lane = select(lane, 32u + firstTrailingBit(lanes.y), lanes.y != 0u);
    return select(lane, firstTrailingBit(lanes.x), lanes.x != 0u);
}
