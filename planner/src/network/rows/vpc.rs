//! A Vpc: a router between its Subnets, and nothing else.

use super::{Cell, Maker, Row, RowId, Table};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vpc {
    pub uid: String,
}

impl Vpc {
    pub fn rows(&self, site: &str) -> Vec<Row> {
        let maker = Maker { site, kind: "Vpc", uid: &self.uid };
        vec![maker.row(Table::LogicalRouter, "", [("name", Cell::Text(RowId::of(&self.uid).name()))])]
    }
}
