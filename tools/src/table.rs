//! Tables as all commands show them.

use std::io::{self, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, ContentArrangement, LineStyle, Table, TableStyle};

/// On a terminal: a line below the header, and no other.
const HEADER_LINE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─'));

/// A table without rows, with a line below the header and as wide as the terminal if
/// `is_terminal`.
pub fn empty_table<'t>(titles: impl IntoIterator<Item = &'t str>, is_terminal: bool) -> Table {
    let mut table = Table::new();
    table.set_header(
        titles.into_iter().map(|title| Cell::new(title).add_attribute(Attribute::Bold)),
    );
    match is_terminal {
        true => {
            table.load_style(HEADER_LINE);
            table.set_content_arrangement(match table.width() {
                // A terminal that nobody has told its size.
                Some(0) => ContentArrangement::Disabled,
                _ => ContentArrangement::Dynamic,
            });
            table.enforce_styling();
        }
        false => {
            table.load_style(NOTHING);
            table.force_no_tty();
        }
    }
    table
}

/// Writes a table.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_table(table: &Table, out: &mut impl Write) -> io::Result<()> {
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
