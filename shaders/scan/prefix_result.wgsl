// ----- Prefix of a tile
struct Prefix {
    known: bool,  // false if the tile has no prefix
    item: Item,
}
