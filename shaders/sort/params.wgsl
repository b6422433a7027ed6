{#- The parameters of the stages that sort tiles, and the steps of the sort: one for each digit, from the lowest.
    Values: digits: the number of digits of a key. -#}
struct Params {
    length: u32,  // of all rows together
    row_length: u32,
    tile_size: u32,
    tiles_per_row: u32,
    tiles: u32,  // of all rows together
    step: u32,  // the digit of this dispatch
    epoch: u32,  // of the sort; with the step added, the tag of this step's posts, 1 to 65535
    spin_rounds: u32,  // polls of a late post, in rounds
}

// A step reads one of the arrays and writes another: 0 is the input, 1 the result, 2 the temporary array.
struct Step {
    is_needed: u32,  // 0 to skip the step
    source: u32,
    destination: u32,
    is_first: u32,
    is_last: u32,
    mask: u32,  // of the digit's bits; 0 to keep the order; from bit 16 on, how many bits higher the digit is
}

const RADIX_BITS = {{ radix_bits }}u;
const RADIX = 1u << RADIX_BITS;
const DIGITS = {{ digits }}u;
const WORKGROUP_SIZE = {{ workgroup_size }}u;

// The plan of a sort with a single pass for each digit. The kernels before the first pass write it.
struct Plan {
    steps: array<Step, DIGITS>,
    bases: array<u32>,  // where the elements with each value of a digit begin: (rows, digits, digit values)
}
