/* methods.c - the list of methods. How to add one: docs/methods/README.md. */
#include "method/parts.h"

const struct method *const methods[] = {
    &method_supervised,
    &method_copypaste,
    &method_mt,
    &method_entropy,
    &method_ua_mt,
    &method_ict,
    &method_dtc,
    &method_dan,
    &method_sassnet,
    &method_simcvd,
    &method_mc_net,
    &method_mc_net_plus,
    &method_urpc,
    &method_cct,
    &method_chaitanya,
    &method_aua,
    NULL,
};
