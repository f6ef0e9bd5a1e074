//! An object whose fields are replaced, one by one, by references to the message.

use larder_kernel::Result;
use serde_json::value::RawValue;

use super::object;
use crate::transcript::fields::{Fields, text};
use crate::transcript::shape::Shape;

/// The fields of an object, in order. A field that the message holds has a shape.
pub(in crate::transcript) struct Draft(Vec<(String, Box<RawValue>, Option<Shape>)>);

impl From<Fields> for Draft {
    fn from(fields: Fields) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name, value, None)).collect())
    }
}

impl Draft {
    pub(super) fn parse(written: &RawValue, what: &'static str) -> Result<Self> {
        object(written, what).map(Self::from)
    }

    pub(in crate::transcript) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(known, _, _)| known == name).map(|(_, value, _)| &**value)
    }

    /// Returns a copy of a field.
    pub(in crate::transcript) fn take(&self, name: &str) -> Option<Box<RawValue>> {
        self.get(name).map(ToOwned::to_owned)
    }

    /// Returns the first of these fields that exists.
    pub(super) fn first<'n>(&self, names: &[&'n str]) -> Option<(&'n str, Box<RawValue>)> {
        names.iter().find_map(|name| Some((*name, self.take(name)?)))
    }

    pub(in crate::transcript) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn is_object(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.get().starts_with('{'))
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(text)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _, _)| name.clone()).collect()
    }

    /// Replaces the value of a field.
    pub(in crate::transcript) fn set(&mut self, name: &str, shape: Shape) {
        if let Some((_, _, set)) = self.0.iter_mut().find(|(known, _, _)| known == name) {
            *set = Some(shape);
        }
    }

    /// Keeps a field out of the metadata, with its value.
    pub(super) fn keep(&mut self, name: &str) {
        if let Some(value) = self.take(name) {
            self.set(name, Shape::Raw(value));
        }
    }

    /// Returns the length of the object as JSON, in bytes.
    pub(super) fn json_len(&self) -> usize {
        self.0.iter().map(|(name, value, _)| name.len() + value.get().len() + 4).sum::<usize>() + 1
    }

    /// Returns the fields that the message holds, and the others.
    pub(in crate::transcript) fn split(self) -> (Vec<(String, Shape)>, Fields) {
        let (mut held, mut rest) = (Vec::new(), Fields::default());
        for (name, value, shape) in self.0 {
            match shape {
                Some(shape) => held.push((name, shape)),
                None => rest.push(name, value),
            }
        }
        (held, rest)
    }

    /// Returns the whole object.
    pub(in crate::transcript) fn into_shape(self) -> Shape {
        let fields = self.0.into_iter();
        Shape::Object(fields.map(|(name, value, shape)| (name, shape.unwrap_or(Shape::Raw(value)))).collect())
    }
}
