//! The imports between modules, and their cycles.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::Written;
use super::tree::{Entry, Tree};

/// The target of a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Module(usize),
    /// An item, by the module that defines it.
    Item(usize),
}

type Seen = BTreeSet<(usize, String, usize)>;

/// Each import between two modules, with one path that causes it.
pub(crate) type Edges = BTreeMap<(usize, usize), String>;

impl Tree {
    pub(crate) fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (from, module) in self.modules.iter().enumerate() {
            let globs = module.globs.iter().map(|(path, _)| (path, true));
            for (path, glob) in module.paths.iter().map(|path| (path, false)).chain(globs) {
                for target in self.resolve(from, path, &mut Seen::new()) {
                    let to = match target {
                        Target::Item(to) => to,
                        Target::Module(to) if glob => to,
                        // The paths through an imported module show which items are used.
                        Target::Module(_) => continue,
                    };
                    if !self.related(from, to) {
                        edges.entry((from, to)).or_insert_with(|| path.to_string());
                    }
                }
            }
        }
        edges
    }

    /// Returns `true` if two modules are the same, or one contains the other.
    fn related(&self, one: usize, other: usize) -> bool {
        self.within(one, other) || self.within(other, one)
    }

    fn within(&self, inner: usize, outer: usize) -> bool {
        let parents = std::iter::successors(Some(inner), |id| self.modules[*id].parent);
        parents.into_iter().any(|id| id == outer)
    }

    fn resolve(&self, from: usize, path: &Written, seen: &mut Seen) -> Vec<Target> {
        let mut at = from;
        let mut anchored = false;
        for (index, segment) in path.0.iter().enumerate() {
            match segment.as_str() {
                "crate" => at = 0,
                "self" => {}
                "super" => at = self.modules[at].parent.unwrap_or(0),
                _ => {
                    let last = index + 1 == path.0.len();
                    let found = self.lookup(at, segment, from, seen);
                    if last {
                        // A macro may have generated the item.
                        let unknown = found.is_empty() && anchored;
                        return if unknown { vec![Target::Item(at)] } else { found };
                    }
                    let module = found.iter().find_map(|target| match target {
                        Target::Module(id) => Some(*id),
                        Target::Item(_) => None,
                    });
                    match module {
                        Some(id) => at = id,
                        None if found.is_empty() && anchored => return vec![Target::Item(at)],
                        None => return found,
                    }
                }
            }
            anchored = true;
        }
        vec![Target::Module(at)]
    }

    /// Resolves a name in a module, as seen from another module.
    fn lookup(&self, at: usize, name: &str, viewer: usize, seen: &mut Seen) -> Vec<Target> {
        if !seen.insert((at, name.to_owned(), viewer)) {
            return Vec::new();
        }
        let inside = self.within(viewer, at);
        let module = &self.modules[at];
        let mut found = Vec::new();
        for entry in module.names.get(name).into_iter().flatten() {
            match &entry.entry {
                _ if entry.private && !inside => {}
                Entry::Module(id) => found.push(Target::Module(*id)),
                Entry::Item => found.push(Target::Item(at)),
                Entry::Import(path) => found.extend(self.resolve(at, path, seen)),
            }
        }
        if found.is_empty() && !module.names.contains_key(name) {
            for (path, private) in &module.globs {
                if *private && !inside {
                    continue;
                }
                for target in self.resolve(at, path, seen) {
                    if let Target::Module(id) = target {
                        found.extend(self.lookup(id, name, at, seen));
                    }
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Returns the groups of nodes that reach each other, without groups of one node.
pub(crate) fn circles(nodes: usize, edges: &Edges) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); nodes];
    for (from, to) in edges.keys() {
        next[*from].push(*to);
    }
    let reached: Vec<BTreeSet<usize>> = (0..nodes)
        .map(|start| {
            let (mut seen, mut open) = (BTreeSet::new(), next[start].clone());
            while let Some(node) = open.pop() {
                if seen.insert(node) {
                    open.extend(&next[node]);
                }
            }
            seen
        })
        .collect();
    let mut found: Vec<Vec<usize>> = Vec::new();
    for node in 0..nodes {
        if !reached[node].contains(&node) || found.iter().any(|circle| circle.contains(&node)) {
            continue;
        }
        found.push(reached[node].iter().copied().filter(|other| reached[*other].contains(&node)).collect());
    }
    found
}
