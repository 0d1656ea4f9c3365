//! Orders of tasks. A graph is, for each task, the places of those that it waits for.

use std::collections::BTreeSet;

/// The tasks in the order in which they would run one by one: in the text's, except that none comes before what it waits for. Those
/// that wait for each other are not there.
pub(super) fn one_by_one(graph: &[Vec<usize>]) -> Vec<usize> {
    let mut waits: Vec<usize> = graph.iter().map(Vec::len).collect();
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); graph.len()];
    for (at, before) in graph.iter().enumerate() {
        before.iter().for_each(|before| waiting[*before].push(at));
    }
    let mut ready: BTreeSet<usize> = (0..graph.len()).filter(|at| waits[*at] == 0).collect();
    let mut order = Vec::new();
    while let Some(at) = ready.pop_first() {
        order.push(at);
        for next in &waiting[at] {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                ready.insert(*next);
            }
        }
    }
    order
}

/// Tasks that wait for each other: each for the next one, and the last one for the first, which is the one that comes first in the text.
pub(super) fn circle(graph: &[Vec<usize>]) -> Option<Vec<usize>> {
    let done: BTreeSet<usize> = one_by_one(graph).into_iter().collect();
    let mut way = vec![(0..graph.len()).find(|at| !done.contains(at))?];
    let mut seen = BTreeSet::new();
    loop {
        let last = *way.last()?;
        if !seen.insert(last) {
            let begin = way.iter().position(|at| *at == last)?;
            let mut circle = way[begin..way.len() - 1].to_vec();
            let first = circle.iter().enumerate().min_by_key(|(_, at)| **at).map(|(n, _)| n)?;
            circle.rotate_left(first);
            return Some(circle);
        }
        // What is not done waits for something that is not done.
        way.push(graph[last].iter().copied().find(|before| !done.contains(before))?);
    }
}
