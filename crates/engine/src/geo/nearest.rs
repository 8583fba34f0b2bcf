//! The first elements of an order, as far as they are wanted.

use std::cmp::Ordering;

/// Parts of fewer elements are sorted by insertion.
const INSERTION_MAX: usize = 7;
/// Of more elements a middle one is taken out of nine instead of three.
const NINE_FROM: usize = 40;
/// Times that a part may have been divided, for each halving that would do. Whatever is left then is sorted in another way.
const DIVISIONS_PER_HALVING: u32 = 8;

/// A part that is to be sorted.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    end: usize,
    /// How often it may still be divided.
    divisions: u32,
}

/// Sorts as far as the first `wanted` elements are those and in order.
///
/// Elements that compare as equal come in the order in which Redis gives them: if all are wanted, in that in which they were.
/// Else it is what quicksort by J. L. Bentley and M. D. McIlroy ("Engineering a Sort Function", 1993) makes of it, where parts
/// are left out that begin beyond what is wanted.
pub fn sort_first<T>(elements: &mut [T], wanted: usize, compare: impl Fn(&T, &T) -> Ordering) {
    if wanted >= elements.len() {
        elements.sort_by(compare);
        return;
    }
    let halvings = usize::BITS - elements.len().leading_zeros();
    let mut parts = vec![Part { start: 0, end: elements.len(), divisions: DIVISIONS_PER_HALVING * halvings }];
    while let Some(Part { start, end, divisions }) = parts.pop() {
        let part = &mut elements[start..end];
        if part.len() < INSERTION_MAX {
            insertion_sort(part, &compare);
            continue;
        }
        let Some(divisions) = divisions.checked_sub(1) else {
            part.sort_by(&compare);
            continue;
        };
        let (less, greater) = divide(part, &compare);
        for (start, end) in [(start, start + less), (end - greater, end)] {
            if start < wanted && end - start > 1 {
                parts.push(Part { start, end, divisions });
            }
        }
    }
}

fn insertion_sort<T>(part: &mut [T], compare: &impl Fn(&T, &T) -> Ordering) {
    for sorted in 1..part.len() {
        let mut at = sorted;
        while at > 0 && compare(&part[at - 1], &part[at]).is_gt() {
            part.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// Divides a part into what is less than one of its elements, equal to it, and greater. Returns how many are less and how many
/// are greater.
///
/// ```text
///   meanwhile    equal | less | not compared yet | greater | equal
/// ```
fn divide<T>(part: &mut [T], compare: &impl Fn(&T, &T) -> Ordering) -> (usize, usize) {
    let count = part.len();
    let middle = middle(part, compare);
    part.swap(0, middle);
    // The first element that is less, the first not compared, and the ends of those not compared and of those that are greater.
    let (mut less, mut next, mut end, mut greater_end) = (1, 1, count, count);
    loop {
        while next < end {
            match compare(&part[next], &part[0]) {
                Ordering::Greater => break,
                Ordering::Equal => {
                    part.swap(less, next);
                    less += 1;
                }
                Ordering::Less => {}
            }
            next += 1;
        }
        while next < end {
            match compare(&part[end - 1], &part[0]) {
                Ordering::Less => break,
                Ordering::Equal => {
                    part.swap(end - 1, greater_end - 1);
                    greater_end -= 1;
                }
                Ordering::Greater => {}
            }
            end -= 1;
        }
        if next >= end {
            break;
        }
        part.swap(next, end - 1);
        next += 1;
        end -= 1;
    }
    let (less_count, greater_count) = (next - less, greater_end - end);
    exchange(part, 0, next, less.min(less_count));
    exchange(part, next, count, greater_count.min(count - greater_end));
    (less_count, greater_count)
}

/// Exchanges as many elements from `start` on with those before `end`, one by one.
fn exchange<T>(part: &mut [T], start: usize, end: usize, count: usize) {
    (0..count).for_each(|index| part.swap(start + index, end - count + index));
}

/// An element that is likely to be in the middle of the order.
fn middle<T>(part: &[T], compare: &impl Fn(&T, &T) -> Ordering) -> usize {
    let count = part.len();
    let of_three = |a, b, c| median(part, [a, b, c], compare);
    let (first, half, last) = (0, count / 2, count - 1);
    if count == INSERTION_MAX {
        return half;
    }
    if count <= NINE_FROM {
        return of_three(first, half, last);
    }
    let eighth = count / 8;
    of_three(
        of_three(first, first + eighth, first + 2 * eighth),
        of_three(half - eighth, half, half + eighth),
        of_three(last - 2 * eighth, last - eighth, last),
    )
}

fn median<T>(part: &[T], [a, b, c]: [usize; 3], compare: &impl Fn(&T, &T) -> Ordering) -> usize {
    let compare = |a: usize, b: usize| compare(&part[a], &part[b]);
    match compare(a, b).is_lt() {
        true if compare(b, c).is_lt() => b,
        true if compare(a, c).is_lt() => c,
        true => a,
        false if compare(b, c).is_gt() => b,
        false if compare(a, c).is_lt() => a,
        false => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_key(a: &(u32, usize), b: &(u32, usize)) -> Ordering {
        a.0.cmp(&b.0)
    }

    /// So many elements with keys below a bound, numbered.
    fn numbered(random: &mut fastrand::Rng, count: usize, keys: u32) -> Vec<(u32, usize)> {
        (0..count).map(|number| (random.u32(..keys), number)).collect()
    }

    #[test]
    fn the_first_ones_are_those_of_a_full_sort() {
        let mut random = fastrand::Rng::with_seed(stillframe_testkit::seed());
        for _ in 0..2_000 {
            let count = random.usize(0..200);
            let keys = random.u32(1..300);
            let elements = numbered(&mut random, count, keys);
            let wanted = random.usize(1..220);
            let mut some = elements.clone();
            sort_first(&mut some, wanted, by_key);
            let mut all = elements.clone();
            all.sort();
            let key_of = |elements: &[(u32, usize)]| -> Vec<u32> {
                elements.iter().take(wanted).map(|element| element.0).collect()
            };
            assert_eq!(key_of(&some), key_of(&all));
            some.sort();
            assert_eq!(some, all, "none is lost");
        }
    }

    #[test]
    fn equal_ones_stay_in_order_if_all_are_wanted() {
        let mut elements = numbered(&mut fastrand::Rng::with_seed(1), 100, 3);
        let mut sorted = elements.clone();
        sorted.sort();
        sort_first(&mut elements, 100, by_key);
        assert_eq!(elements, sorted);
    }

    /// An order in which every division takes few elements off does not make it slow.
    #[test]
    fn no_order_takes_long() {
        let count = 20_000;
        // McIlroy's adversary ("A Killer Adversary for Quicksort", 1999) decides while it is asked.
        let keys: Vec<std::cell::Cell<usize>> = vec![std::cell::Cell::new(count); count];
        let (solid, candidate) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
        let compared = std::cell::Cell::new(0u64);
        let freeze = |element: usize| {
            keys[element].set(solid.get());
            solid.set(solid.get() + 1);
        };
        let mut elements: Vec<usize> = (0..count).collect();
        sort_first(&mut elements, count - 1, |a, b| {
            compared.set(compared.get() + 1);
            if keys[*a].get() == count && keys[*b].get() == count {
                freeze(if *a == candidate.get() { *a } else { *b });
            }
            if keys[*a].get() == count {
                candidate.set(*a);
            } else if keys[*b].get() == count {
                candidate.set(*b);
            }
            keys[*a].get().cmp(&keys[*b].get())
        });
        assert!(elements[..count - 1].is_sorted_by_key(|element| keys[*element].get()));
        let compared = compared.get();
        assert!(compared < 200 * count as u64, "{compared} comparisons");
    }
}
