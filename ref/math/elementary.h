/* elementary.h - exp, log and the circular functions, our own, so that every compiler and C library gives the same bits.
 *
 * Every function is within 1 ulp of the true value on its stated domain, follows IEEE 754 for NaN and infinities, and
 * uses only +, -, *, /, sqrt and conversions, each correctly rounded (no contraction, no fma). [NUM] */
#ifndef CLOVER_ELEMENTARY_H
#define CLOVER_ELEMENTARY_H

double el_exp(double x);         /* all x; subnormal results included */
double el_log(double x);         /* x > 0; 0 -> -inf, negative -> NaN */
double el_log1p(double x);       /* x > -1 */
double el_sin(double x);         /* |x| <= 2^32 */
double el_cos(double x);         /* |x| <= 2^32 */
double el_pow(double x, double y);   /* x > 0 */

#endif
