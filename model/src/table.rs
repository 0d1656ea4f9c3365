//! The objects of one kind.

use crate::objects::Objects;
use executor::Object;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use planner::machine::observed::name;
use std::ops::Index;
use std::sync::Arc;

pub trait Kind: Object + PartialEq {
    fn table(objects: &Objects) -> &Table<Self>;
    fn table_mut(objects: &mut Objects) -> &mut Table<Self>;
}

/// Of whatever kind: its namespace, if its kind has any, and its name.
pub fn names(meta: &ObjectMeta) -> (&str, &str) {
    (meta.namespace.as_deref().unwrap_or_default(), name(meta))
}

/// The objects of one kind, in the order of namespace and name. Few are there, and they are looked for all the time.
#[derive(Debug, Clone)]
pub struct Sorted<K>(Vec<Arc<K>>);

impl<K> Default for Sorted<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Kind> Sorted<K> {
    fn find(&self, wanted: (&str, &str)) -> Result<usize, usize> {
        self.0.binary_search_by(|there| names(there.meta()).cmp(&wanted))
    }

    pub fn get(&self, wanted: (&str, &str)) -> Option<&Arc<K>> {
        self.find(wanted).ok().map(|at| &self.0[at])
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.0.iter()
    }

    pub fn insert(&mut self, object: Arc<K>) {
        match self.find(names(object.meta())) {
            Ok(at) => self.0[at] = object,
            Err(at) => self.0.insert(at, object),
        }
    }

    pub fn remove(&mut self, wanted: (&str, &str)) {
        if let Ok(at) = self.find(wanted) {
            self.0.remove(at);
        }
    }
}

/// All of one kind, and every change of it.
#[derive(Debug)]
pub struct Table<K> {
    there: Sorted<K>,
    /// `true`: it ended with this.
    log: Vec<(Arc<K>, bool)>,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self { there: Sorted::default(), log: Vec::new() }
    }
}

impl<K: Clone> Clone for Table<K> {
    fn clone(&self) -> Self {
        Self { there: self.there.clone(), log: Vec::new() }
    }
}

/// What an object is found by: its name, where that is in one namespace only, or namespace and name.
pub trait Named {
    fn is(&self, names: (&str, &str)) -> bool;
}

impl Named for &str {
    fn is(&self, (_, name): (&str, &str)) -> bool {
        *self == name
    }
}

impl Named for &String {
    fn is(&self, (_, name): (&str, &str)) -> bool {
        *self == name
    }
}

impl Named for &(String, String) {
    fn is(&self, names: (&str, &str)) -> bool {
        (self.0.as_str(), self.1.as_str()) == names
    }
}

impl<K: Kind> Table<K> {
    pub(crate) fn find(&self, wanted: (&str, &str)) -> Option<&Arc<K>> {
        self.there.get(wanted)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.there.all()
    }

    /// In their order; `true`: the object ended with this.
    pub fn changes(&self) -> &[(Arc<K>, bool)] {
        &self.log
    }

    pub(crate) fn set(&mut self, object: K, ends: bool) -> Arc<K> {
        let object = Arc::new(object);
        match ends {
            true => self.there.remove(names(object.meta())),
            false => self.there.insert(object.clone()),
        }
        self.log.push((object.clone(), ends));
        object
    }
}

/// Behind everybody's back: what is done here is no request, has no version, and no watch tells of it.
impl<K: Kind> Table<K> {
    fn position(&self, named: &impl Named) -> Option<usize> {
        self.there.0.iter().position(|object| named.is(names(object.meta())))
    }

    pub fn get(&self, named: impl Named) -> Option<&K> {
        self.position(&named).map(|at| &*self.there.0[at])
    }

    pub fn get_mut(&mut self, named: impl Named) -> Option<&mut K> {
        self.position(&named).map(|at| Arc::make_mut(&mut self.there.0[at]))
    }

    pub fn contains(&self, named: impl Named) -> bool {
        self.position(&named).is_some()
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.there.0.iter().map(|object| &**object)
    }

    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut K> {
        self.there.0.iter_mut().map(Arc::make_mut)
    }

    pub fn names(&self) -> Vec<String> {
        self.values().map(|object| name(object.meta()).to_owned()).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.there.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.there.0.len()
    }

    pub fn insert(&mut self, object: K) {
        self.there.insert(Arc::new(object));
    }

    pub fn remove(&mut self, named: impl Named) -> Option<K> {
        let at = self.position(&named)?;
        Some(Arc::unwrap_or_clone(self.there.0.remove(at)))
    }

    pub fn retain(&mut self, stays: impl Fn(&K) -> bool) {
        self.there.0.retain(|object| stays(object));
    }

    pub fn clear(&mut self) {
        self.there.0.clear();
    }
}

impl<K: Kind, N: Named> Index<N> for Table<K> {
    type Output = K;

    fn index(&self, named: N) -> &K {
        self.get(named).expect("an object of the model")
    }
}
