/* Made by tools/golden_branches.py with PyTorch 1.13.0a0: do not edit. */
static const struct golden_note golden_notes_cct_two[] = {
    {0, 0, "loss", 0.757155119}, {0, 0, "supervised", 0.72525005}, {0, 0, "ce", 0.852400972}, {0, 0,
    "dice", 0.598099128}, {0, 0, "consistency", 0.0315675473}, {0, 0, "weight", 1.01069205}, {0, 0,
    "gradient", 1.37068977}, {0, 1, "loss", 0.810068792}, {0, 1, "supervised", 0.777523989}, {0, 1,
    "ce", 0.934183115}, {0, 1, "dice", 0.620864862}, {0, 1, "consistency", 0.0322005142}, {0, 1,
    "weight", 1.01069205}, {0, 1, "gradient", 1.03107522}, {0, 2, "loss", 0.781984038}, {0, 2,
    "supervised", 0.763784545}, {0, 2, "ce", 0.906781509}, {0, 2, "dice", 0.620787581}, {0, 2,
    "consistency", 0.018006962}, {0, 2, "weight", 1.01069205}, {0, 2, "gradient", 0.89245827}, {0,
    3, "loss", 0.830864205}, {0, 3, "supervised", 0.782888097}, {0, 3, "ce", 0.942845158}, {0, 3,
    "dice", 0.622931036}, {0, 3, "consistency", 0.0474685713}, {0, 3, "weight", 1.01069205}, {0, 3,
    "gradient", 0.943172631}, {0, 4, "loss", 0.811996189}, {0, 4, "supervised", 0.783115332}, {0, 4,
    "ce", 0.941690464}, {0, 4, "dice", 0.624540199}, {0, 4, "consistency", 0.0285753291}, {0, 4,
    "weight", 1.01069205}, {0, 4, "gradient", 1.29859678}, {0, 5, "loss", 0.782121793}, {0, 5,
    "supervised", 0.737931723}, {0, 5, "ce", 0.869790468}, {0, 5, "dice", 0.606072978}, {0, 5,
    "consistency", 0.0437225867}, {0, 5, "weight", 1.01069205}, {0, 5, "gradient", 1.39215272}, {0,
    6, "loss", 0.842359475}, {0, 6, "supervised", 0.806860368}, {0, 6, "ce", 0.980237899}, {0, 6,
    "dice", 0.633482837}, {0, 6, "consistency", 0.0351235644}, {0, 6, "weight", 1.01069205}, {0, 6,
    "gradient", 0.583319821}, {0, 7, "loss", 0.822037179}, {0, 7, "supervised", 0.786618648}, {0, 7,
    "ce", 0.950234061}, {0, 7, "dice", 0.623003235}, {0, 7, "consistency", 0.0350438404}, {0, 7,
    "weight", 1.01069205}, {0, 7, "gradient", 1.06929297}, {0, 8, "loss", 0.76203119}, {0, 8,
    "supervised", 0.733191799}, {0, 8, "ce", 0.856474614}, {0, 8, "dice", 0.609908984}, {0, 8,
    "consistency", 0.0285343012}, {0, 8, "weight", 1.01069205}, {0, 8, "gradient", 0.967407547}, {0,
    9, "loss", 0.77068336}, {0, 9, "supervised", 0.73387556}, {0, 9, "ce", 0.865382302}, {0, 9,
    "dice", 0.602368818}, {0, 9, "consistency", 0.0364184121}, {0, 9, "weight", 1.01069205}, {0, 9,
    "gradient", 1.01770948}
};
static const struct golden_note golden_notes_cct_three[] = {
    {0, 0, "loss", 0.844545431}, {0, 0, "supervised", 0.842797583}, {0, 0, "ce", 1.0484212}, {0, 0,
    "dice", 0.754673174}, {0, 0, "consistency", 0.0518807416}, {0, 0, "weight", 0.033689735}, {0, 0,
    "gradient", 0.448130898}, {0, 1, "loss", 0.877641282}, {0, 1, "supervised", 0.873433176}, {0, 1,
    "ce", 1.12245024}, {0, 1, "dice", 0.766711576}, {0, 1, "consistency", 0.0483069111}, {0, 1,
    "weight", 0.0871118732}, {0, 1, "gradient", 0.370292627}, {0, 2, "loss", 0.883248784}, {0, 2,
    "supervised", 0.874020969}, {0, 2, "ce", 1.10817681}, {0, 2, "dice", 0.773668467}, {0, 2,
    "consistency", 0.0452763342}, {0, 2, "weight", 0.20381102}, {0, 2, "gradient", 0.292654944}, {0,
    3, "loss", 0.914647706}, {0, 3, "supervised", 0.891883086}, {0, 3, "ce", 1.16799396}, {0, 3,
    "dice", 0.773549853}, {0, 3, "consistency", 0.0527608619}, {0, 3, "weight", 0.431467932}, {0, 3,
    "gradient", 0.379607787}, {0, 4, "loss", 0.861604094}, {0, 4, "supervised", 0.845456405}, {0, 4,
    "ce", 1.03670209}, {0, 4, "dice", 0.763493967}, {0, 4, "consistency", 0.0195375659}, {0, 4,
    "weight", 0.826494441}, {0, 4, "gradient", 0.332393559}, {0, 5, "loss", 0.953061303}, {0, 5,
    "supervised", 0.876353443}, {0, 5, "ce", 1.14749376}, {0, 5, "dice", 0.760150448}, {0, 5,
    "consistency", 0.0535473477}, {0, 5, "weight", 1.43252398}, {0, 5, "gradient", 0.752640894}, {0,
    6, "loss", 0.942690002}, {0, 6, "supervised", 0.869978805}, {0, 6, "ce", 1.1128353}, {0, 6,
    "dice", 0.76589745}, {0, 6, "consistency", 0.0323643491}, {0, 6, "weight", 2.24664482}, {0, 6,
    "gradient", 0.589229456}, {0, 7, "loss", 0.935242697}, {0, 7, "supervised", 0.857216708}, {0, 7,
    "ce", 1.08324478}, {0, 7, "dice", 0.760347533}, {0, 7, "consistency", 0.0244738216}, {0, 7,
    "weight", 3.18814076}, {0, 7, "gradient", 0.703096878}, {0, 8, "loss", 0.935212634}, {0, 8,
    "supervised", 0.845793171}, {0, 8, "ce", 1.05756989}, {0, 8, "dice", 0.755031722}, {0, 8,
    "consistency", 0.0218434357}, {0, 8, "weight", 4.09365377}, {0, 8, "gradient", 0.901939755}, {0,
    9, "loss", 0.992062004}, {0, 9, "supervised", 0.887306131}, {0, 9, "ce", 1.13718541}, {0, 9,
    "dice", 0.780215013}, {0, 9, "consistency", 0.0220253642}, {0, 9, "weight", 4.75614712}, {0, 9,
    "gradient", 0.528094233}
};
static const struct golden_run golden_runs_cct[] = {
    {.name = "cct_two", .classes = 2, .channels = 1, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_cct_two, .n_notes = 70, .prototypes = NULL,
     .set = {.method = (char[]){"cct"}, .seed = 81, .steps = 10, .patch = {32, 32, 32}, .batch = 4,
             .labeled_batch = 2, .filters = 2, .dropout = NET_DROPOUT_BOTH, .augment = AUGMENT_CROP,
             .dice_share = 0.5, .optimizer = OPTIM_SGD, .schedule = SCHEDULE_STEP, .lr = 0.0002,
             .momentum = 0.9, .weight_decay = 0.1, .clip = 0.0, .ema_decay = 0.99, .consistency =
             150.0, .teacher_noise = 0.1, .ramp = RAMP_STEPS, .sup_dice = 1, .ssn_rank = 8,
             .mc_samples = 6, .ged_metric = GED_CLASS_MEAN, .head_norm = 0, .nb_rule = NB_CENTRED,
             .bcl_layout = BCL_CORRECT, .bcl_reduce = BCL_MEAN, .bcl_cap = 150, .lambda_c = 0.09,
             .bcl_tau = 0.07, .proto_ckpt = PROTO_LAST, .proto_update = 1, .lambda_r = 0.1, .pcl_tau
             = 100.0, .pcl_ignore_bg = 1, .pcl_cov = PCL_DIAGONAL, .pseudo_weight = 1.0,
             .pseudo_threshold = 0.0, .stage2_init = STAGE2_FRESH, .stage2_cov = 0, .stage2_paste =
             0, .stage2_share = 1.0, .stages = 2, .paste_warmup = 0.25, .paste_size =
             0.6666666666666666, .paste_weight = 0.5}},
    {.name = "cct_three", .classes = 3, .channels = 2, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_cct_three, .n_notes = 70, .prototypes = NULL,
     .set = {.method = (char[]){"cct"}, .seed = 82, .steps = 10, .patch = {32, 32, 32}, .batch = 3,
             .labeled_batch = 2, .filters = 2, .dropout = NET_DROPOUT_BOTH, .augment = AUGMENT_CROP,
             .dice_share = 0.7, .optimizer = OPTIM_SGD, .schedule = SCHEDULE_POLY, .lr = 0.0001,
             .momentum = 0.9, .weight_decay = 0.1, .clip = 0.0, .ema_decay = 0.99, .consistency =
             5.0, .teacher_noise = 0.1, .ramp = RAMP_CONTINUOUS, .sup_dice = 1, .ssn_rank = 8,
             .mc_samples = 6, .ged_metric = GED_CLASS_MEAN, .head_norm = 0, .nb_rule = NB_CENTRED,
             .bcl_layout = BCL_CORRECT, .bcl_reduce = BCL_MEAN, .bcl_cap = 150, .lambda_c = 0.09,
             .bcl_tau = 0.07, .proto_ckpt = PROTO_LAST, .proto_update = 1, .lambda_r = 0.1, .pcl_tau
             = 100.0, .pcl_ignore_bg = 1, .pcl_cov = PCL_DIAGONAL, .pseudo_weight = 1.0,
             .pseudo_threshold = 0.0, .stage2_init = STAGE2_FRESH, .stage2_cov = 0, .stage2_paste =
             0, .stage2_share = 1.0, .stages = 2, .paste_warmup = 0.25, .paste_size =
             0.6666666666666666, .paste_weight = 0.5}},
};
