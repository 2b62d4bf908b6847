/* test_sample.c - the generator and the distribution. [SMP-1, SMP-2, SMP-3, SMP-4, SMP-5] */
#include <math.h>
#include "harness.h"
#include "../ref/sample.h"

/* SplitMix64 from seed 1234567, as published with the algorithm (Rosetta Code, "Pseudo-random numbers/Splitmix64"). */
START_TEST(splitmix64_gives_its_published_outputs) {
    static const uint64_t expected[] = { 6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u,
                                         16408922859458223821u };
    uint64_t state = 1234567;
    for (int i = 0; i < 5; i++) ck_assert_uint_eq(splitmix64_next(&state), expected[i]);
}
END_TEST

/* xoshiro256** from the state 1, 2, 3, 4: outputs of the authors' reference code, as in the tests of Rust's rand_xoshiro. */
START_TEST(xoshiro256ss_gives_its_published_outputs) {
    static const uint64_t expected[] = { 11520u, 0u, 1509978240u, 1215971899390074240u, 1216172134540287360u, 607988272756665600u,
                                         16172922978634559625u, 8476171486693032832u, 10595114339597558777u, 2904607092377533576u };
    Generator g = { { 1, 2, 3, 4 } };
    for (int i = 0; i < 10; i++) ck_assert_uint_eq(generator_next(&g), expected[i]);
}
END_TEST

/* The first output after state {1, 2, 3, 4} is 11520 = 5 * 2^8 * 9; shifted right by 11 it is 5. */
START_TEST(uniform_is_the_upper_53_bits) {
    Generator g = { { 1, 2, 3, 4 } };
    ck_assert_double_eq(generator_uniform(&g), 5.0 / 9007199254740992.0);
    generator_seed(&g, 7);
    for (int i = 0; i < 10000; i++) {
        double u = generator_uniform(&g);
        ck_assert(u >= 0 && u < 1);
    }
}
END_TEST

START_TEST(a_seed_fills_the_state_by_splitmix64) {
    static const uint64_t expected[] = { 6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u };
    Generator g;
    generator_seed(&g, 1234567);
    for (int i = 0; i < 4; i++) ck_assert_uint_eq(g.state[i], expected[i]);
}
END_TEST

static void assert_distribution(const double *logits, int64_t n, double temperature, int64_t top_k, double top_p,
                                const double *expected) {
    double p[8];
    RankedId work[8];
    sample_distribution(p, logits, n, temperature, top_k, top_p, work);
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(close_to(p[i], expected[i], 1e-14, 0), "p[%d] = %.17g, expected %.17g", (int)i, p[i], expected[i]);
}

/* Logits that are logarithms of weights: the distribution is the weights over their sum. At T = 1/2 the weights are squared. */
#define LOG_1_2_3_4 { 0, 0.69314718055994530942, 1.09861228866810969140, 1.38629436111989061883 }

START_TEST(temperature_divides_the_logits) {
    assert_distribution((double[])LOG_1_2_3_4, 4, 1, 0, 1, (double[]){ 0.1, 0.2, 0.3, 0.4 });
    assert_distribution((double[])LOG_1_2_3_4, 4, 0.5, 0, 1, (double[]){ 1.0 / 30, 4.0 / 30, 9.0 / 30, 16.0 / 30 });
}
END_TEST

START_TEST(a_temperature_near_zero_is_greedy_and_does_not_overflow) {
    assert_distribution((double[]){ 700, -700, 800, -INFINITY }, 4, 5e-324, 0, 1, (double[]){ 0, 0, 1, 0 });
}
END_TEST

START_TEST(top_k_keeps_the_k_largest_and_their_equals) {
    assert_distribution((double[])LOG_1_2_3_4, 4, 1, 2, 1, (double[]){ 0, 0, 3.0 / 7, 4.0 / 7 });
    assert_distribution((double[]){ 1, 5, 1, 5, 0 }, 5, 1, 1, 1, (double[]){ 0, 0.5, 0, 0.5, 0 });    /* a tie with the first */
    assert_distribution((double[])LOG_1_2_3_4, 4, 1, 9, 1, (double[]){ 0.1, 0.2, 0.3, 0.4 });         /* more than there are */
    assert_distribution((double[]){ 2, -INFINITY, 2, -INFINITY }, 4, 1, 3, 1, (double[]){ 0.5, 0, 0.5, 0 });
}
END_TEST

/* Exact binary masses 1/2, 1/4, 1/8, 1/8: the mass before the second is 1/2, before the third 3/4. */
START_TEST(top_p_drops_what_comes_after_the_mass_exceeds_it) {
    const double l = 0.69314718055994530942;
    const double logits[] = { -3 * l, -l, -3 * l, -2 * l };
    assert_distribution(logits, 4, 1, 0, 0.4, (double[]){ 0, 1, 0, 0 });                         /* the first stays though it is above */
    assert_distribution(logits, 4, 1, 0, 0.6, (double[]){ 0, 2.0 / 3, 0, 1.0 / 3 });
    assert_distribution(logits, 4, 1, 0, 0.8, (double[]){ 1.0 / 7, 4.0 / 7, 0, 2.0 / 7 });       /* of the equal two the lower id first */
    assert_distribution(logits, 4, 1, 0, 1, (double[]){ 0.125, 0.5, 0.125, 0.25 });
}
END_TEST

/* Equal logits give exact masses of 1/4: the mass before the third is 1/2, which does not exceed 1/2. */
START_TEST(top_p_keeps_what_comes_when_the_mass_equals_it) {
    assert_distribution((double[]){ 0, 0, 0, 0 }, 4, 1, 0, 0.5, (double[]){ 1.0 / 3, 1.0 / 3, 1.0 / 3, 0 });
}
END_TEST

/* After top-k the mass is that of the kept ids: 3/7 and 4/7 here, so 0.5 keeps only the larger. */
START_TEST(top_p_comes_after_top_k) {
    assert_distribution((double[])LOG_1_2_3_4, 4, 1, 2, 0.5, (double[]){ 0, 0, 0, 1 });
    assert_distribution((double[])LOG_1_2_3_4, 4, 1, 0, 0.5, (double[]){ 0, 0, 3.0 / 7, 4.0 / 7 });
}
END_TEST

START_TEST(a_draw_walks_the_ids_upwards) {
    const double p[] = { 0, 0.25, 0.5, 0, 0.25 };
    ck_assert_int_eq(sample_draw(p, 5, 0), 1);               /* never an id of mass zero */
    ck_assert_int_eq(sample_draw(p, 5, 0.2499), 1);
    ck_assert_int_eq(sample_draw(p, 5, 0.25), 2);
    ck_assert_int_eq(sample_draw(p, 5, 0.7499), 2);
    ck_assert_int_eq(sample_draw(p, 5, 0.75), 4);
    ck_assert_int_eq(sample_draw((double[]){ 0.5, 0.4, 0 }, 3, 0.95), 1);    /* a mass that rounding left short */
}
END_TEST

/* 100,000 draws of 0.1, 0.2, 0.3, 0.4: each count within five standard deviations. */
START_TEST(draws_follow_the_distribution) {
    const double p[] = { 0.1, 0.2, 0.3, 0.4 };
    const int n = 100000;
    int count[4] = { 0 };
    Generator g;
    generator_seed(&g, 1);
    for (int i = 0; i < n; i++) count[sample_draw(p, 4, generator_uniform(&g))]++;
    for (int i = 0; i < 4; i++) ck_assert_double_lt(fabs(count[i] - n * p[i]), 5 * sqrt(n * p[i] * (1 - p[i])));
}
END_TEST

Suite *sample_suite(void) {
    Suite *s = suite_create("sample");
    TCase *c = tcase_create("generator");
    tcase_add_test(c, splitmix64_gives_its_published_outputs);
    tcase_add_test(c, xoshiro256ss_gives_its_published_outputs);
    tcase_add_test(c, uniform_is_the_upper_53_bits);
    tcase_add_test(c, a_seed_fills_the_state_by_splitmix64);
    suite_add_tcase(s, c);
    c = tcase_create("distribution");
    tcase_add_test(c, temperature_divides_the_logits);
    tcase_add_test(c, a_temperature_near_zero_is_greedy_and_does_not_overflow);
    tcase_add_test(c, top_k_keeps_the_k_largest_and_their_equals);
    tcase_add_test(c, top_p_drops_what_comes_after_the_mass_exceeds_it);
    tcase_add_test(c, top_p_keeps_what_comes_when_the_mass_equals_it);
    tcase_add_test(c, top_p_comes_after_top_k);
    tcase_add_test(c, a_draw_walks_the_ids_upwards);
    tcase_add_test(c, draws_follow_the_distribution);
    suite_add_tcase(s, c);
    return s;
}

int main(void) { return harness_run(sample_suite()); }
