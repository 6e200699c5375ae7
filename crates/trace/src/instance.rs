//! DSA instances as CSV: `id,lower,upper,size[,alignment][,gaps][,offset]`, columns in any order; those of `MiniMalloc` are read
//! as it reads them: a column `end` names the last instant at which a buffer lives, where `upper` names the first at which it does not.

use std::io::{self, Read, Write};

use csv::{ByteRecord, ReaderBuilder, Terminator, Trim};

use crate::error::{Budget, Fault, FilePosition, Result};
use crate::input::InputBytes;

const LONGEST_LINE: usize = 1 << 20;
/// Memory that a row may take in addition to its id.
const ROW_BYTES: u64 = 96;
const FIX_LINE: &str =
    "a row is whole numbers: id,lower,upper,size[,alignment][,offset], and gaps such as 3-5 7-9@0:64";
const FIX_HEADER: &str = "the first line names the columns, such as id,lower,upper,size";

/// A column of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Id,
    Lower,
    Upper,
    /// As `Upper`, but the last instant of a lifetime.
    End,
    Size,
    Alignment,
    Gaps,
    Offset,
    Other,
}

impl Column {
    fn named(name: &[u8]) -> Self {
        match name.trim_ascii().to_ascii_lowercase().as_slice() {
            b"id" | b"buffer" | b"buffer_id" => Column::Id,
            b"lower" | b"begin" | b"start" => Column::Lower,
            b"upper" => Column::Upper,
            b"end" => Column::End,
            b"size" => Column::Size,
            b"alignment" => Column::Alignment,
            b"gaps" => Column::Gaps,
            b"offset" => Column::Offset,
            _ => Column::Other,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Column::Id => "id",
            Column::Lower => "lower",
            Column::Upper => "upper",
            Column::End => "end",
            Column::Size => "size",
            Column::Alignment => "alignment",
            Column::Gaps => "gaps",
            Column::Offset => "offset",
            Column::Other => "",
        }
    }
}

/// A buffer of an instance: it needs `size` bytes during `[lower, upper)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceRow {
    /// Its name in the file.
    pub id: Box<str>,
    /// First instant at which it lives.
    pub lower: u64,
    /// First instant at which it no longer lives; more than `lower`.
    pub upper: u64,
    /// Bytes.
    pub size: u64,
    /// Its offset must be a multiple of this; 1 for no constraint, never 0.
    pub alignment: u64,
    /// When it needs less than all of its bytes.
    pub gaps: Vec<Gap>,
    /// Where it is, if the file says so.
    pub offset: Option<u64>,
}

/// A time within a lifetime when a buffer needs none of its bytes, or those of a window alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first instant.
    pub lower: u64,
    /// The first instant after it.
    pub upper: u64,
    /// The bytes that it needs even then, from its offset on: the first, and one past the last.
    pub window: Option<(u64, u64)>,
}

impl InstanceRow {
    /// What it takes: first instant and one past the last, first byte and one past the last, from its offset on.
    pub fn pieces(&self) -> Vec<(u64, u64, u64, u64)> {
        let mut gaps = self.gaps.clone();
        gaps.sort_unstable_by_key(|gap| (gap.lower, gap.upper));
        let (mut pieces, mut from) = (Vec::new(), self.lower);
        for gap in gaps {
            pieces.push((from, gap.lower, 0, self.size));
            pieces.extend(gap.window.map(|(first, last)| (gap.lower, gap.upper, first, last)));
            from = gap.upper;
        }
        pieces.push((from, self.upper, 0, self.size));
        pieces.retain(|piece| piece.0 < piece.1 && piece.2 < piece.3);
        pieces
    }
}

/// An instance of dynamic storage allocation, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstanceTable {
    /// Its buffers.
    pub rows: Vec<InstanceRow>,
    /// What was odd but could be read, in sentences.
    pub warnings: Vec<String>,
    columns: Vec<Column>,
}

impl InstanceTable {
    /// An instance of the usual columns.
    pub fn new(rows: Vec<InstanceRow>) -> Self {
        let columns = vec![Column::Id, Column::Lower, Column::Upper, Column::Size];
        InstanceTable { rows, warnings: Vec::new(), columns }
    }

    /// Writes the instance as CSV with an `offset` column: the rows and columns in their order.
    pub fn write(&self, out: impl Write, offsets: &[u64]) -> io::Result<()> {
        if offsets.len() != self.rows.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "one offset is needed for each row"));
        }
        let mut columns: Vec<Column> = self.columns.iter().copied().filter(|&c| c != Column::Other).collect();
        if !columns.contains(&Column::Offset) {
            columns.push(Column::Offset);
        }
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(columns.iter().map(|column| column.name()))?;
        for (row, offset) in self.rows.iter().zip(offsets) {
            for column in &columns {
                let number = match column {
                    Column::Id | Column::Other => {
                        writer.write_field(row.id.as_bytes())?;
                        continue;
                    }
                    Column::Gaps => {
                        let after = u64::from(self.columns.contains(&Column::End));
                        let gaps: Vec<String> = row.gaps.iter().map(|gap| gap.shown(after)).collect();
                        writer.write_field(gaps.join(" "))?;
                        continue;
                    }
                    Column::Lower => row.lower,
                    Column::Upper => row.upper,
                    Column::End => row.upper - 1,
                    Column::Size => row.size,
                    Column::Alignment => row.alignment,
                    Column::Offset => *offset,
                };
                writer.write_field(number.to_string())?;
            }
            writer.write_record(None::<&[u8]>)?;
        }
        writer.flush()
    }

    /// The largest load over time: no placement needs less. O(n log n).
    pub fn lower_bound(&self) -> u64 {
        let mut ends: Vec<(u64, bool, u64)> = Vec::with_capacity(2 * self.rows.len());
        let mut add = |lower, upper, size| ends.extend([(lower, true, size), (upper, false, size)]);
        for row in &self.rows {
            if row.gaps.is_empty() {
                add(row.lower, row.upper, row.size);
            } else {
                row.pieces().into_iter().for_each(|(lower, upper, from, to)| add(lower, upper, to - from));
            }
        }
        // At the same instant, what ends (false) goes before what begins.
        ends.sort_unstable();
        let (mut load, mut peak) = (0u128, 0u128);
        for (_, begins, size) in ends {
            if begins {
                load += u128::from(size);
                peak = peak.max(load);
            } else {
                load -= u128::from(size);
            }
        }
        u64::try_from(peak).unwrap_or(u64::MAX)
    }
}

impl Gap {
    /// As in the file, where the last instant may be meant.
    fn shown(&self, after: u64) -> String {
        let window = self.window.map(|(from, to)| format!("@{from}:{to}")).unwrap_or_default();
        format!("{}-{}{window}", self.lower, self.upper - after)
    }

    /// From the file: `LOWER-UPPER` or `LOWER-UPPER@FROM:TO`, with so many instants after the upper one.
    fn read(text: &str, after: u64) -> Option<Gap> {
        let (time, window) = text.split_once('@').map_or((text, None), |(time, window)| (time, Some(window)));
        let number = |text: &str| text.parse::<u64>().ok();
        let (lower, upper) = time.split_once('-')?;
        let window = match window.map(|window| window.split_once(':')) {
            None => None,
            Some(pair) => Some((number(pair?.0)?, number(pair?.1)?)),
        };
        Some(Gap { lower: number(lower)?, upper: number(upper)?.checked_add(after)?, window })
    }
}

/// Whether a line is the header of an instance.
pub(crate) fn is_header(line: &[u8]) -> bool {
    let columns: Vec<Column> = line.split(|&b| b == b',').map(Column::named).collect();
    let has = |column| columns.contains(&column) || column == Column::Upper && columns.contains(&Column::End);
    // A wrong header is still one: the reader then says which column is missing.
    columns.len() >= 3 && [Column::Lower, Column::Upper, Column::Size].into_iter().filter(|&c| has(c)).count() >= 2
}

/// Hands bytes to the CSV reader: no endless line, which it would keep in memory, and a line end after the last.
struct Lines<'i, 'a> {
    input: &'i mut InputBytes<'a>,
    in_line: usize,
}

impl Read for Lines<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.input.fill(1).map_err(|fault| fault.source.unwrap_or(io::ErrorKind::Other.into()))?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.input.consume(count);
        if count == 0 && self.in_line > 0 && !buffer.is_empty() {
            self.in_line = 0;
            buffer[0] = b'\n';
            return Ok(1);
        }
        match buffer[..count].iter().rposition(|&b| b == b'\n') {
            Some(end) => self.in_line = count - end - 1,
            None => self.in_line += count,
        }
        if self.in_line > LONGEST_LINE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line of over {LONGEST_LINE} bytes")));
        }
        Ok(count)
    }
}

/// The records of a file with their lines.
struct Records<'i, 'a> {
    reader: csv::Reader<Lines<'i, 'a>>,
    record: ByteRecord,
}

impl Records<'_, '_> {
    /// Moves to the next record that is not blank; false at the end.
    fn advance(&mut self) -> Result<bool> {
        loop {
            match self.reader.read_byte_record(&mut self.record) {
                Ok(false) => return Ok(false),
                Ok(true) if self.record.len() == 1 && self.record[0].is_empty() => {}
                Ok(true) => return Ok(true),
                Err(error) => return Err(Fault::damaged(self.position(), format!("cannot be read: {error}"))),
            }
        }
    }

    /// The line of the record: the reader stands at the start of the one after it.
    fn position(&self) -> FilePosition {
        FilePosition::Line(self.reader.position().line().saturating_sub(1).max(1))
    }
}

/// Reads an instance.
pub(crate) fn read(input: &mut InputBytes<'_>, mut budget: Budget) -> Result<InstanceTable> {
    let reader = ReaderBuilder::new()
        .flexible(true)
        .trim(Trim::All)
        .comment(Some(b'#'))
        .has_headers(false)
        .terminator(Terminator::Any(b'\n'))
        .from_reader(Lines { input, in_line: 0 });
    let mut records = Records { reader, record: ByteRecord::new() };
    records.advance()?;
    let shown = |field: &[u8]| String::from_utf8_lossy(field).chars().take(40).collect::<String>();
    let names: Vec<String> = records.record.iter().map(|field| format!("{:?}", shown(field))).collect();
    let columns = header(&records.record).map_err(|problem| Fault::new(records.position(), problem, FIX_HEADER))?;
    let mut instance = InstanceTable { rows: Vec::new(), warnings: Vec::new(), columns };
    let others = names.iter().zip(&instance.columns).filter(|(_, column)| **column == Column::Other);
    let others: Vec<&str> = others.map(|(name, _)| name.as_str()).collect();
    if !others.is_empty() {
        instance.warnings.push(format!("unknown columns are ignored: {}", others.join(", ")));
    }
    if instance.columns.contains(&Column::End) {
        let text = "column \"end\" names the last instant at which a buffer lives, as MiniMalloc reads it; \"upper\" names the first after it";
        instance.warnings.push(text.to_owned());
    }
    while records.advance()? {
        budget.charge(ROW_BYTES + records.record.as_slice().len() as u64)?;
        let row = row(&instance.columns, &records.record, instance.rows.len());
        instance.rows.push(row.map_err(|problem| Fault::new(records.position(), problem, FIX_LINE))?);
    }
    Ok(instance)
}

fn header(record: &ByteRecord) -> std::result::Result<Vec<Column>, String> {
    let columns: Vec<Column> = record.iter().map(Column::named).collect();
    let known =
        [Column::Id, Column::Lower, Column::Upper, Column::Size, Column::Alignment, Column::Gaps, Column::Offset];
    for column in known {
        let is = |c: &&Column| **c == column || column == Column::Upper && **c == Column::End;
        let count = columns.iter().filter(is).count();
        let name = column.name();
        if count > 1 {
            return Err(format!("{count} columns {name:?}"));
        }
        if count == 0 && matches!(column, Column::Lower | Column::Upper | Column::Size) {
            return Err(format!("no column {name:?}"));
        }
    }
    Ok(columns)
}

fn row(columns: &[Column], record: &ByteRecord, index: usize) -> std::result::Result<InstanceRow, String> {
    if record.len() > columns.len() {
        return Err(format!("{} fields for {} columns", record.len(), columns.len()));
    }
    let mut id: Option<Box<str>> = None;
    let (mut lower, mut upper, mut size, mut alignment, mut offset) = (None, None, None, None, None);
    let (mut gaps, mut end) = (Vec::new(), None);
    let after = u64::from(columns.contains(&Column::End));
    for (&column, field) in columns.iter().zip(record) {
        let text = String::from_utf8_lossy(field);
        let into = match column {
            Column::Other => continue,
            Column::Id => {
                id = Some(text.into());
                continue;
            }
            Column::Gaps => {
                for gap in text.split_ascii_whitespace() {
                    let wrong = || format!("gap {gap:?} is not LOWER-UPPER or LOWER-UPPER@FROM:TO, in whole numbers");
                    gaps.push(Gap::read(gap, after).ok_or_else(wrong)?);
                }
                continue;
            }
            Column::Lower => &mut lower,
            Column::Upper => &mut upper,
            Column::End => &mut end,
            Column::Size => &mut size,
            Column::Alignment => &mut alignment,
            Column::Offset => &mut offset,
        };
        // An optional field may be left empty.
        if text.is_empty() && matches!(column, Column::Alignment | Column::Offset) {
            continue;
        }
        match text.parse::<u64>() {
            Ok(number) => *into = Some(number),
            Err(_) => {
                let shown: String = text.chars().take(40).collect();
                return Err(format!("{} is {shown:?}, not a whole number from 0 to 2^64 - 1", column.name()));
            }
        }
    }
    if let Some(end) = end {
        upper = Some(end.checked_add(1).ok_or("end is 2^64 - 1, after which no time is left")?);
    }
    let needed = |value: Option<u64>, name: &str| value.ok_or_else(|| format!("no {name}"));
    let row = InstanceRow {
        id: id.unwrap_or_else(|| index.to_string().into()),
        lower: needed(lower, "lower")?,
        upper: needed(upper, "upper")?,
        size: needed(size, "size")?,
        alignment: alignment.unwrap_or(1),
        gaps,
        offset,
    };
    if row.lower >= row.upper {
        return Err(format!("lower is {}, not less than upper, {}", row.lower, row.upper));
    }
    if row.alignment == 0 {
        return Err("alignment is 0".to_owned());
    }
    let mut gaps: Vec<&Gap> = row.gaps.iter().collect();
    gaps.sort_unstable_by_key(|gap| (gap.lower, gap.upper));
    let mut from = row.lower;
    for gap in gaps {
        let (first, last) = gap.window.unwrap_or((0, row.size));
        if gap.lower < from || gap.lower >= gap.upper || gap.upper > row.upper || first > last || last > row.size {
            return Err(format!(
                "gap {} overlaps another, or is not within the lifetime and the size",
                gap.shown(after)
            ));
        }
        from = gap.upper;
    }
    Ok(row)
}
