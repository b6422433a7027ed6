{#- Number the subgroups of a workgroup, and their lanes, so that it does not matter which invocations they consist of.
    All have as many lanes.
    in:  lane; `registered`, an atomic word of workgroup memory
    Defines: group, the subgroup's number; lanes, how many it has; member, the lane's number among them; below and
    above, the bits of the lanes before and after. -#}
    // Some drivers do not clear workgroup memory (lavapipe).
    atomicStore(&registered, 0u);
    workgroupBarrier();
    let members = subgroupBallot(true);
    let below = lanes_below(lane) & members;
    let above = members & ~lanes_below(lane + 1u);
    let member = count_bits(below);
    let lanes = count_bits(members);
    let number = atomicAdd(&registered, select(0u, 1u, member == 0u));
    let group = subgroupShuffle(number, lowest_lane(members));
