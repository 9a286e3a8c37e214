//! Where the active descriptors lie among all.
//!
//! Their placement matters to `poll`: a scan that finds nothing at first joins wait queues until it
//! finds something. The test behind the well-known break-even of 0.6 had its active pipes at the
//! end.

crate::by_name::named! {
    /// A place for the active descriptors.
    pub(crate) enum Placement {
        /// The last ones registered.
        End = "end",
        /// Evenly among all.
        Spread = "spread",
        /// The first ones registered.
        Front = "front",
    }
}

impl Placement {
    /// Returns the active descriptors: `active` different numbers below `total`, ascending; at most
    /// `total` of them.
    pub(crate) fn choose(self, total: usize, active: usize) -> Vec<u32> {
        let active = active.min(total);
        let place = |n: usize| match self {
            Placement::End => total - active + n,
            // The middle of the nth of `active` equal parts.
            Placement::Spread => (2 * n + 1) * total / (2 * active),
            Placement::Front => n,
        };
        (0..active).map(|n| place(n) as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_where_it_says() {
        assert_eq!(Placement::End.choose(10, 3), [7, 8, 9]);
        assert_eq!(Placement::Front.choose(10, 3), [0, 1, 2]);
        assert_eq!(Placement::Spread.choose(9, 3), [1, 4, 7]);
        assert_eq!(Placement::Spread.choose(1000, 1), [500]);
        assert!(Placement::Spread.choose(0, 0).is_empty());
    }

    #[test]
    fn they_are_always_different_ascending_and_within() {
        for placement in Placement::ALL {
            for total in [1, 2, 7, 100] {
                for active in 0..=total {
                    let chosen = placement.choose(total, active);
                    assert_eq!(chosen.len(), active);
                    assert!(chosen.windows(2).all(|two| two[0] < two[1]));
                    assert!(chosen.iter().all(|&n| (n as usize) < total));
                }
            }
        }
        assert_eq!(Placement::End.choose(2, 5), [0, 1]);
    }
}
