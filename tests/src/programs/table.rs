//! What measuring programs print.

/// The lines of a table of `perftest`: numbers alone, the first the size in bytes.
#[derive(Debug)]
pub struct Table {
    /// Each line's numbers.
    pub rows: Vec<Vec<f64>>,
}

impl Table {
    /// The table in `text`.
    pub fn parse(text: &str) -> Table {
        let numbers = |line: &str| -> Option<Vec<f64>> {
            line.split_whitespace().map(|word| word.parse().ok()).collect()
        };
        let rows = text.lines().filter_map(numbers).filter(|row| row.len() > 2).collect();
        Table { rows }
    }

    /// Whether there is a line for each of `sizes`, in bytes, with `column` above 0.
    ///
    /// # Errors
    /// If not: which line lacks what.
    pub fn check(&self, sizes: &[u64], column: usize) -> Result<(), String> {
        let seen: Vec<u64> = self.rows.iter().map(|row| row[0] as u64).collect();
        if seen != sizes {
            return Err(format!("sizes are {seen:?}, not {sizes:?}"));
        }
        let positive = |row: &&Vec<f64>| row.get(column).is_some_and(|number| *number > 0.0);
        match self.rows.iter().find(|row| !positive(row)) {
            None => Ok(()),
            Some(row) => Err(format!("column {column} of {row:?} is not above 0")),
        }
    }
}

/// Runs `check` on each row, and tells of all that fail.
///
/// # Panics
/// If one fails.
pub fn each_row<R: std::fmt::Debug>(rows: &[R], check: impl Fn(&R) -> Result<(), String>) {
    let failed: Vec<String> = rows
        .iter()
        .filter_map(|row| check(row).err().map(|error| format!("== {row:?}\n{error}")))
        .collect();
    assert!(failed.is_empty(), "{} of {} fail\n{}", failed.len(), rows.len(), failed.join("\n"));
}
