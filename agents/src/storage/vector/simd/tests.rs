use super::*;
use crate::storage::vector::tests::numbers;

#[test]
fn every_level_gives_the_bits_of_the_plain_one() {
    for dimensions in [1, 2, 15, 16, 63, 64, 65, 384, 768, 1_023, 1_024, 1_025, 3_000] {
        let (left, right) = (numbers(1, dimensions), numbers(2, dimensions));
        let expected = dot::<false>(&left, &right);
        let exact: f64 = left.iter().zip(&right).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        let norms = left.iter().chain(&right).map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>();
        assert!((expected - exact).abs() <= DOT_ERROR * norms);
        for level in Level::all() {
            assert_eq!(level.dot(&left, &right).to_bits(), expected.to_bits(), "{level:?} {dimensions}");
            let in_order = level.dot_in_order(&left, &right);
            assert_eq!(in_order.to_bits(), expected.to_bits(), "{level:?} {dimensions}");
        }
    }
    let mut random = larder_kernel::random::Random::new(1);
    let mut byte = || random.draw().to_le_bytes()[0];
    for depth in [1, 3, 16, 250] {
        let mut line = || Line(std::array::from_fn(|_| byte()));
        let panel: Vec<Line> = (0..PANEL_ROWS * depth).map(|_| line()).collect();
        let queries: Vec<[Line; 3]> = (0..depth).map(|_| std::array::from_fn(|_| line())).collect();
        let single: Vec<[Line; 1]> = queries.iter().map(|lines| [lines[1]]).collect();
        let mut expected = [[0; PANEL_ROWS]; 3];
        tile(&panel, &queries, &mut expected);
        for level in Level::all() {
            let mut dots = [[7; PANEL_ROWS]; 3];
            level.tile(&panel, &queries, &mut dots);
            assert_eq!(dots, expected, "{level:?} {depth}");
            assert_eq!(level.product(&panel[5 * depth..][..depth], &single), expected[1][5]);
            let slack = Slack { scale: 0.01, bias: 5, factor: 1.1, rest: 0.1 };
            let (scales, errors) = ([0.5; PANEL_ROWS], std::array::from_fn(|row| 0.1 * row as f32));
            let of = |level: Level| level.bound(&dots[0], &scales, &errors, &slack);
            assert_eq!(of(level), of(Level::Plain));
        }
    }
}
