//! Writes results to stdout: lines, JSON, and tables that align.
//!
//! Text of others (error messages, labels, ids) reaches a terminal without its control characters.

use std::io::{self, Write};

use serde::Serialize;

use super::exit::CliError;

/// The longest cell, in characters.
const CELL_CHARS: usize = 120;

/// How many rows of a table are held to find its widths. Later rows keep at least these.
const ROWS_HELD: usize = 200;

/// One JSON value on a line of its own.
pub(super) fn json(out: &mut impl Write, value: &impl Serialize) -> Result<(), CliError> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

/// One JSON value over several lines, for people.
pub(super) fn pretty_json(out: &mut impl Write, value: &impl Serialize) -> Result<(), CliError> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

/// The text without control characters.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

/// A table that is written row by row.
#[derive(Debug)]
pub(super) struct Table<'a, const N: usize> {
    rows: Vec<[String; N]>,
    widths: [usize; N],
    head: Option<[&'a str; N]>,
}

impl<'a, const N: usize> Table<'a, N> {
    pub(super) fn new(head: [&'a str; N]) -> Self {
        Self { rows: Vec::new(), widths: head.map(str::len), head: Some(head) }
    }

    pub(super) fn row(&mut self, out: &mut impl Write, row: [String; N]) -> io::Result<()> {
        let row = row.map(|cell| plain(&cell).chars().take(CELL_CHARS).collect::<String>());
        for (width, cell) in self.widths.iter_mut().zip(&row) {
            *width = (*width).max(cell.chars().count());
        }
        self.rows.push(row);
        if self.rows.len() == ROWS_HELD { self.flush(out) } else { Ok(()) }
    }

    /// Writes what is held. A table without rows is nothing.
    pub(super) fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        if let Some(head) = self.head.take_if(|_| !self.rows.is_empty()) {
            write_row(out, &head.map(str::to_owned), &self.widths)?;
        }
        for row in std::mem::take(&mut self.rows) {
            write_row(out, &row, &self.widths)?;
        }
        out.flush()
    }
}

fn write_row(out: &mut impl Write, row: &[String], widths: &[usize]) -> io::Result<()> {
    let cells: Vec<String> =
        row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    writeln!(out, "{}", cells.join("  ").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_nothing_trails() {
        let (mut out, mut table) = (Vec::new(), Table::new(["CODE", "COUNT"]));
        for (code, count) in [("A", "1"), ("LONGER_CODE", "20"), ("\u{1b}[31mRED", "")] {
            table.row(&mut out, [code.into(), count.into()]).unwrap();
        }
        table.flush(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "CODE         COUNT\nA            1\nLONGER_CODE  20\n\u{FFFD}[31mRED\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_table_without_rows_is_nothing() {
        let mut out = Vec::new();
        Table::new(["CODE"]).flush(&mut out).unwrap();
        assert!(out.is_empty());
    }
}
