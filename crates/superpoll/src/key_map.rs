//! A map from registrations to a program's own data.

use crate::key::Key;

/// A map from the [`Key`]s of one poller to values.
///
/// Keys have small and dense indices, so a look-up is one access to a vector. A key whose
/// registration has ended finds nothing, even if a new registration uses its index.
///
/// ```
/// use superpoll::{Interest, KeyMap, Poller};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut poller = Poller::new()?;
/// let (reader, _writer) = std::io::pipe()?;
/// let mut names = KeyMap::new();
/// let key = poller.register(&reader, Interest::READABLE)?;
/// names.insert(key, "first");
/// assert_eq!(names.get(key), Some(&"first"));
///
/// poller.deregister(key)?;
/// assert_eq!(names.remove(key), Some("first"));
/// let later = poller.register(&reader, Interest::READABLE)?;
/// names.insert(later, "second");
/// assert_eq!((names.get(key), names.get(later)), (None, Some(&"second")));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct KeyMap<T> {
    /// By index, with the generation of the key.
    slots: Vec<Option<(u32, T)>>,
    len: usize,
}

impl<T> KeyMap<T> {
    /// An empty map.
    pub const fn new() -> KeyMap<T> {
        KeyMap { slots: Vec::new(), len: 0 }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stores a value. Returns the value that was stored under the same index before, for this
    /// registration or for one that has ended.
    pub fn insert(&mut self, key: Key, value: T) -> Option<T> {
        let index = key.index() as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        let before = self.slots[index].replace((key.generation(), value));
        self.len += usize::from(before.is_none());
        before.map(|(_, value)| value)
    }

    /// The value of a registration.
    pub fn get(&self, key: Key) -> Option<&T> {
        match self.slots.get(key.index() as usize)? {
            Some((generation, value)) if *generation == key.generation() => Some(value),
            _ => None,
        }
    }

    /// The value of a registration, to change it.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.slots.get_mut(key.index() as usize)? {
            Some((generation, value)) if *generation == key.generation() => Some(value),
            _ => None,
        }
    }

    /// Takes the value of a registration out.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let (_, value) = self.slots.get_mut(key.index() as usize)?.take()?;
        self.len -= 1;
        Some(value)
    }

    /// All values with their keys, in the order of the indices.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| {
            let (generation, value) = slot.as_ref()?;
            Some((Key::new(index, *generation), value))
        })
    }

    /// All values with their keys, to change them, in the order of the indices.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        (0..).zip(&mut self.slots).filter_map(|(index, slot)| {
            let (generation, value) = slot.as_mut()?;
            Some((Key::new(index, *generation), value))
        })
    }
}

impl<T> Default for KeyMap<T> {
    fn default() -> KeyMap<T> {
        KeyMap::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_finds_its_own_value_alone() {
        let mut map = KeyMap::new();
        let [early, late, far] = [(2, 0), (2, 1), (9, u32::MAX)].map(|(i, g)| Key::new(i, g));
        assert_eq!((map.insert(early, 'a'), map.insert(far, 'b')), (None, None));
        assert_eq!(map.iter().map(|(key, _)| key).collect::<Vec<_>>(), [early, far]);
        assert_eq!(
            (map.get(early), map.get(late), map.get(Key::new(99, 0))),
            (Some(&'a'), None, None)
        );
        assert_eq!((map.remove(late), map.len()), (None, 2), "it is another registration");
        assert_eq!((map.insert(late, 'c'), map.len()), (Some('a'), 2));
        assert_eq!(map.get_mut(early), None, "it has ended");
        assert_eq!(map.remove(early), None);
        map.iter_mut().for_each(|(_, value)| value.make_ascii_uppercase());
        assert_eq!(
            (map.remove(late), map.remove(far), map.is_empty()),
            (Some('C'), Some('B'), true)
        );
    }
}
