//! The choice of the server of a group that gets the next request. Pure code.
//!
//! - By turns: smooth weighted round-robin, as in nginx. Each server's credit grows by its weight
//!   with each choice; the server with the most credit is chosen and pays the sum of all the
//!   increases. Servers of weights 5, 1 and 1 come as `a a b a c a a`, not five times the same in
//!   a row.
//! - The fewest connections: the least number of requests under way for the weight. Equal servers
//!   take turns.
//! - By hash: rendezvous hashing with weights. Each server has a score that follows from the server
//!   and the client alone, and the highest score is chosen; so when a server goes, only its own
//!   clients move, each to its second choice.

/// A server that can be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    pub index: usize,
    pub weight: u32,
}

/// Chooses by turns. `credit` has a place for each server of the group.
pub(super) fn by_turns(
    credit: &mut [i64],
    candidates: impl Iterator<Item = Candidate>,
) -> Option<usize> {
    let mut given = 0;
    let mut best: Option<usize> = None;
    for Candidate { index, weight } in candidates {
        credit[index] += i64::from(weight);
        given += i64::from(weight);
        if best.is_none_or(|best| credit[index] > credit[best]) {
            best = Some(index);
        }
    }
    if let Some(best) = best {
        credit[best] -= given;
        // Weights may have been larger before: nobody owes or is owed more than a round of each
        // server.
        let most = given.saturating_mul(credit.len() as i64);
        credit.iter_mut().for_each(|credit| *credit = (*credit).clamp(-most, most));
    }
    best
}

/// Chooses the server with the least load for its weight. `active` returns a server's load.
pub(super) fn by_load(
    credit: &mut [i64],
    candidates: impl Iterator<Item = Candidate> + Clone,
    active: impl Fn(usize) -> u64,
) -> Option<usize> {
    // Loads are compared as fractions: a / w < b / v as a * v < b * w.
    let load = |of: &Candidate| (u128::from(active(of.index)), u128::from(of.weight));
    let least = candidates.clone().map(|candidate| load(&candidate)).min_by(
        |(active, weight), (other, others_weight)| (active * others_weight).cmp(&(other * weight)),
    )?;
    let alike = candidates.filter(|candidate| {
        let (active, weight) = load(candidate);
        active * least.1 == least.0 * weight
    });
    by_turns(credit, alike)
}

/// Chooses by the client. `key` distinguishes the servers, and is the same for a server in all
/// processes.
pub(super) fn by_hash(
    client: u64,
    candidates: impl Iterator<Item = Candidate>,
    key: impl Fn(usize) -> u64,
) -> Option<usize> {
    let score = |of: &Candidate| {
        // The upper 53 bits make a number between 0 and 1, both excluded.
        let mixed = mix(client ^ key(of.index)) >> 11;
        let share = (mixed as f64 + 0.5) / (1_u64 << 53) as f64;
        -f64::from(of.weight) / share.ln()
    };
    let scores = candidates.map(|candidate| (score(&candidate), candidate.index));
    scores.max_by(|(score, _), (other, _)| score.total_cmp(other)).map(|(_, index)| index)
}

/// Spreads a difference in one bit over all bits: the finalizer of SplitMix64 (Steele, Lea and
/// Flood, 2014).
pub(super) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Returns a number for some bytes.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8);
    words.fold(bytes.len() as u64, |state, word| {
        let mut eight = [0; 8];
        eight[..word.len()].copy_from_slice(word);
        mix(state ^ u64::from_le_bytes(eight))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(weights: &[u32]) -> impl Iterator<Item = Candidate> + Clone {
        weights.iter().enumerate().map(|(index, &weight)| Candidate { index, weight })
    }

    #[test]
    fn turns_are_spread_by_weight() {
        let mut credit = [0; 3];
        let order: Vec<_> =
            (0..14).map(|_| by_turns(&mut credit, of(&[5, 1, 1])).unwrap()).collect();
        assert_eq!(order, [0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(by_turns(&mut credit, of(&[])), None);
    }

    #[test]
    fn turns_follow_a_weight_that_becomes_smaller() {
        let mut credit = [0; 2];
        for _ in 0..5000 {
            by_turns(&mut credit, of(&[10_000, 1])).unwrap();
        }
        let next: Vec<_> = (0..40).map(|_| by_turns(&mut credit, of(&[1, 1])).unwrap()).collect();
        let of_first = next.iter().filter(|&&chosen| chosen == 0).count();
        assert!(of_first.abs_diff(20) <= 4, "{next:?}");
    }

    #[test]
    fn the_least_loaded_for_its_weight_is_chosen_and_equals_take_turns() {
        let mut credit = [0; 3];
        let active = [4, 3, 9];
        let chosen = by_load(&mut credit, of(&[2, 1, 5]), |index| active[index]);
        assert_eq!(chosen, Some(2));
        let mut seen = [0; 3];
        for _ in 0..30 {
            seen[by_load(&mut credit, of(&[1, 1, 1]), |_| 7).unwrap()] += 1;
        }
        assert_eq!(seen, [10, 10, 10]);
    }

    #[test]
    fn hashing_follows_weights_and_moves_as_few_clients_as_possible() {
        let weights = [1, 2, 1];
        let key = |index: usize| hash(&[b'a' + u8::try_from(index).unwrap()]);
        let clients: Vec<u64> = (0..30_000_u32).map(|client| hash(&client.to_be_bytes())).collect();
        let before: Vec<_> =
            clients.iter().map(|&client| by_hash(client, of(&weights), key).unwrap()).collect();
        for (index, &weight) in weights.iter().enumerate() {
            let share = before.iter().filter(|&&chosen| chosen == index).count();
            let expected = 7_500 * weight as usize;
            assert!(share.abs_diff(expected) < 500, "{index}: {share}");
        }
        for (&client, &was) in clients.iter().zip(&before) {
            let without = of(&weights).filter(|candidate| candidate.index != 0);
            let now = by_hash(client, without, key).unwrap();
            assert!(was == 0 || now == was);
        }
    }
}
