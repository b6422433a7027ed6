// ----- Prefix of a tile
struct Prefix {
    learned: bool,  // false where the wait was given up
    known: bool,  // false where nothing comes before the tile
    item: Item,
}
