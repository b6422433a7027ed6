// ----- Prefix of a tile's columns
struct Prefix {
    learned: bool,  // false if the wait timed out
    known: bool,  // false if the tile has no prefix
    chunk: Chunk,
}
