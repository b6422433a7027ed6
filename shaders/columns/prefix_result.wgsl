// ----- Prefix of a tile's columns
struct Prefix {
    learned: bool,  // false where the wait was given up
    known: bool,  // false where nothing comes before the tile
    chunk: Chunk,
}
