use super::*;

const COUNT: u64 = 1024;

/// The bytes that an arena says that it holds once it was filled.
fn held(fill: impl Fn(&mut Pickled)) -> u64 {
    let mut arena = Pickled::default();
    assert_eq!(arena.memory(), 0);
    fill(&mut arena);
    arena.memory()
}

#[test]
fn an_arena_says_that_it_holds_what_each_of_its_tables_takes() {
    let each = |add: &dyn Fn(&mut Pickled, u64) -> Value| held(|arena| (0..COUNT).for_each(|n| _ = add(arena, n)));
    let is_near = |bytes: u64, least: u64| assert!((least..2 * least).contains(&bytes), "{bytes} of {least}");
    is_near(each(&|arena, n| arena.int(i128::MAX - i128::from(n))), 16 * COUNT);
    is_near(each(&|arena, n| arena.float(n as f64)), 8 * COUNT);
    is_near(each(&|arena, _| arena.empty_list().unwrap()), 16 * COUNT);
    // The text, where it is, and a table to find it again.
    is_near(each(&|arena, n| arena.text(&(n as u32).to_le_bytes()).unwrap()), (4 + 8 + 5) * COUNT);
    // A tuple is a node and a run of values, which are found again.
    let tuple = |arena: &mut Pickled, n: u64| arena.tuple(&[Value::small_int(n as i32)]).unwrap();
    is_near(each(&tuple), 36 * COUNT);
    // What is appended twice has a second node, and the list knows its last.
    let list = |arena: &mut Pickled, _: u64| {
        let list = arena.empty_list().unwrap();
        (0..2).for_each(|_| arena.append(list, &[Value::NONE]).unwrap());
        list
    };
    is_near(each(&list), 45 * COUNT);
    // A dict of keys of its own is a node, two runs of values, and a shape that is found by its run.
    let dict = |arena: &mut Pickled, n: u64| {
        let dict = arena.empty_dict().unwrap();
        arena.insert(dict, &[Value::small_int(n as i32), Value::NONE], &mut Vec::new()).unwrap();
        dict
    };
    is_near(each(&dict), 69 * COUNT);
}

#[test]
fn equal_contents_are_stored_once_and_come_back_as_they_were() {
    let mut arena = Pickled::default();
    let texts = [arena.text(b"one").unwrap(), arena.text(b"two").unwrap(), arena.text(b"one").unwrap()];
    assert!(texts[0] == texts[2] && texts[0] != texts[1]);
    assert_eq!(arena.as_str(texts[1]).as_deref(), Some("two"));
    let numbers = [-(1i128 << 59), (1 << 59) - 1, 1 << 59, -(1i128 << 59) - 1, 0, -1];
    let values = numbers.map(|number| arena.int(number));
    assert_eq!(values.map(|value| arena.as_int(value)), numbers.map(Some));
    assert_eq!(arena.big, [1 << 59, -(1i128 << 59) - 1], "those that have no room in a value");
    let [one, other] = [arena.tuple(&values).unwrap(), arena.tuple(&values).unwrap()];
    assert_eq!(arena.identity(one), arena.identity(other));
    assert_eq!((arena.len(one), arena.len(values[0])), (6, 0));
    // Two parts of a list are read one after the other.
    let list = arena.empty_list().unwrap();
    arena.append(list, &values[..2]).unwrap();
    arena.append(list, &[]).unwrap();
    arena.append(list, &values[2..]).unwrap();
    assert_eq!(arena.items(list).unwrap().collect::<Vec<_>>(), values);
    assert_eq!(arena.len(list), 6);
    assert!(arena.identity(list) != arena.identity(one));
    // Of a key that comes twice the last value counts.
    let dict = arena.empty_dict().unwrap();
    let mut scratch = Vec::new();
    arena.insert(dict, &[texts[0], values[4], texts[1], values[5]], &mut scratch).unwrap();
    arena.insert(dict, &[texts[0], values[2]], &mut scratch).unwrap();
    assert_eq!((arena.get(dict, "one"), arena.get(dict, "two")), (values[2], values[5]));
    assert_eq!(arena.get(dict, "three"), Value::MISSING);
    assert_eq!(Fields::new(["two", "three", "one"]).of(&arena, dict), [values[5], Value::MISSING, values[2]]);
    assert_eq!(arena.pairs(dict).unwrap().count(), 3);
    assert!(arena.pairs(list).is_none() && arena.items(dict).is_none());
}

#[test]
fn a_value_is_dropped_from_above_a_mark_and_a_mark_where_nothing_is_above_it() {
    let items = |pickle: &[u8]| -> Vec<Option<i128>> {
        let mut progress = |_, _| {};
        let mut input = crate::input::InputBytes::open(pickle, pickle.len() as u64, &mut progress).unwrap();
        let (arena, top) = crate::pickle::load(&mut input, &mut crate::error::Budget::new(1 << 20)).unwrap();
        arena.items(top).unwrap().map(|item| arena.as_int(item)).collect()
    };
    assert_eq!(items(b"\x80\x02(K\x010K\x02t."), [Some(2)]);
    assert_eq!(items(b"\x80\x02(K\x03(0t."), [Some(3)]);
}
