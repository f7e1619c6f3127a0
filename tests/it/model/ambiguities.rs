pub const AMBIGUITIES: [&str; 0] = [];
