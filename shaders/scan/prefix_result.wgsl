// ----- Prefix of a tile
struct Prefix {
    known: bool,  // false where nothing comes before the tile
    item: Item,
}
