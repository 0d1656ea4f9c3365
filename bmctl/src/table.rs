//! Tables as kubectl prints them: upper-case titles, columns padded to three spaces, no borders.

pub struct Table {
    titles: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(titles: &[&'static str]) -> Self {
        Self { titles: titles.to_vec(), rows: Vec::new() }
    }

    /// An empty cell reads `<none>`.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.titles.len());
        self.rows.push(cells.into_iter().map(|c| if c.is_empty() { "<none>".to_owned() } else { c }).collect());
    }

    pub fn render(&self) -> String {
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .chain([self.titles[column].len()])
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.titles.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let padded: String = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}   ")).collect();
            format!("{}\n", padded.trim_end())
        };
        let mut text = line(&mut self.titles.iter().copied());
        for row in &self.rows {
            text.push_str(&line(&mut row.iter().map(String::as_str)));
        }
        text
    }
}

/// An age as kubectl shows it: `45s`, `2m33s`, `5h12m`, `3d4h`.
pub fn age(seconds: i64) -> String {
    let s = seconds.max(0);
    match s {
        0..120 => format!("{s}s"),
        120..600 => format!("{}m{}s", s / 60, s % 60).replace("m0s", "m"),
        600..10_800 => format!("{}m", s / 60),
        10_800..172_800 => format!("{}h{}m", s / 3600, s % 3600 / 60).replace("h0m", "h"),
        _ => format!("{}d{}h", s / 86_400, s % 86_400 / 3600).replace("d0h", "d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_padded_by_its_widest_cell() {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.row(vec!["bm-01".into(), String::new()]);
        assert_eq!(table.render(), "NAME    STATE\nbm-01   <none>\n");
    }

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (5, "5s"),
            (153, "2m33s"),
            (180, "3m"),
            (3600, "60m"),
            (10_860, "3h1m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }
}
