{#- Count elements one by one, and add the length of a run of one bin at once, by the function `add` of the template
    that includes this. Up to MOST_OTHERS elements of other bins do not end a run: they are added by themselves. -#}
const MOST_OTHERS = 3u;

var<private> bin: u32 = NO_BIN;
var<private> run: u32;  // its elements that are not added yet
var<private> others: u32;  // elements of other bins that may still come before the run ends

fn count(next: u32, invocation: u32) {
    if (next == bin) {
        run++;
        others = min(others + 1u, MOST_OTHERS);
    } else {
        let ends = others == 0u;
        add(select(next, bin, ends), select(1u, run, ends), invocation);
        if (ends) {
            bin = next;
            run = 1u;
            others = 1u;
        } else {
            others--;
        }
    }
}
