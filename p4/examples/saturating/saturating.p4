// slots, with sums that stay at the ends of int32.
#define SATURATING
#include "slots.p4"
