/* Made by tools/golden_branches.py with PyTorch 1.13.0a0: do not edit. */
static const struct golden_note golden_notes_urpc_two[] = {
    {0, 0, "loss", 0.734908998}, {0, 0, "supervised", 0.689666295}, {0, 0, "ce", 0.789159763}, {0,
    0, "dice", 0.590172827}, {0, 0, "consistency", 0.0447640828}, {0, 0, "weight", 1.01069205}, {0,
    0, "gradient", 1.85420804}, {0, 1, "loss", 0.728954666}, {0, 1, "supervised", 0.676664575}, {0,
    1, "ce", 0.763630988}, {0, 1, "dice", 0.589698162}, {0, 1, "consistency", 0.0517369165}, {0, 1,
    "weight", 1.01069205}, {0, 1, "gradient", 1.8445819}, {0, 2, "loss", 0.718949846}, {0, 2,
    "supervised", 0.663032419}, {0, 2, "ce", 0.744398467}, {0, 2, "dice", 0.581666372}, {0, 2,
    "consistency", 0.0553258799}, {0, 2, "weight", 1.01069205}, {0, 2, "gradient", 1.5473757}, {0,
    3, "loss", 0.726930742}, {0, 3, "supervised", 0.678457616}, {0, 3, "ce", 0.764674614}, {0, 3,
    "dice", 0.592240618}, {0, 3, "consistency", 0.0479603316}, {0, 3, "weight", 1.01069205}, {0, 3,
    "gradient", 1.59753152}, {0, 4, "loss", 0.74676285}, {0, 4, "supervised", 0.698102533}, {0, 4,
    "ce", 0.794674615}, {0, 4, "dice", 0.601530451}, {0, 4, "consistency", 0.0481455424}, {0, 4,
    "weight", 1.01069205}, {0, 4, "gradient", 1.55148847}, {0, 5, "loss", 0.736504183}, {0, 5,
    "supervised", 0.674740308}, {0, 5, "ce", 0.765078384}, {0, 5, "dice", 0.584402233}, {0, 5,
    "consistency", 0.0611104784}, {0, 5, "weight", 1.01069205}, {0, 5, "gradient", 2.10210126}, {0,
    6, "loss", 0.763467871}, {0, 6, "supervised", 0.689472038}, {0, 6, "ce", 0.782374236}, {0, 6,
    "dice", 0.59656984}, {0, 6, "consistency", 0.0732130358}, {0, 6, "weight", 1.01069205}, {0, 6,
    "gradient", 1.78913872}, {0, 7, "loss", 0.730276985}, {0, 7, "supervised", 0.680135656}, {0, 7,
    "ce", 0.770119887}, {0, 7, "dice", 0.590151425}, {0, 7, "consistency", 0.0496108866}, {0, 7,
    "weight", 1.01069205}, {0, 7, "gradient", 1.60744882}, {0, 8, "loss", 0.688946093}, {0, 8,
    "supervised", 0.644003798}, {0, 8, "ce", 0.716797318}, {0, 8, "dice", 0.571210278}, {0, 8,
    "consistency", 0.0444668529}, {0, 8, "weight", 1.01069205}, {0, 8, "gradient", 1.65001588}, {0,
    9, "loss", 0.716504683}, {0, 9, "supervised", 0.665054158}, {0, 9, "ce", 0.746913827}, {0, 9,
    "dice", 0.583194489}, {0, 9, "consistency", 0.0509062332}, {0, 9, "weight", 1.01069205}, {0, 9,
    "gradient", 1.83756049}
};
static const struct golden_note golden_notes_urpc_three[] = {
    {0, 0, "loss", 0.880241895}, {0, 0, "supervised", 0.879110394}, {0, 0, "ce", 0.939833441}, {0,
    0, "dice", 0.737423285}, {0, 0, "consistency", 0.0559764984}, {0, 0, "weight", 0.020213841}, {0,
    0, "gradient", 1.92308164}, {0, 1, "loss", 0.912204067}, {0, 1, "supervised", 0.907055158}, {0,
    1, "ce", 0.979620802}, {0, 1, "dice", 0.737735323}, {0, 1, "consistency", 0.0985114307}, {0, 1,
    "weight", 0.0522671239}, {0, 1, "gradient", 2.55396804}, {0, 2, "loss", 0.885550069}, {0, 2,
    "supervised", 0.87736637}, {0, 2, "ce", 0.940090448}, {0, 2, "dice", 0.73101019}, {0, 2,
    "consistency", 0.066922279}, {0, 2, "weight", 0.122286612}, {0, 2, "gradient", 1.92432608}, {0,
    3, "loss", 0.920734151}, {0, 3, "supervised", 0.89105718}, {0, 3, "ce", 0.952570008}, {0, 3,
    "dice", 0.747527248}, {0, 3, "consistency", 0.114635675}, {0, 3, "weight", 0.258880759}, {0, 3,
    "gradient", 2.68015869}, {0, 4, "loss", 0.975043305}, {0, 4, "supervised", 0.920927897}, {0, 4,
    "ce", 0.997345393}, {0, 4, "dice", 0.742620406}, {0, 4, "consistency", 0.10912638}, {0, 4,
    "weight", 0.495896665}, {0, 4, "gradient", 2.28252587}, {0, 5, "loss", 0.936700587}, {0, 5,
    "supervised", 0.864353734}, {0, 5, "ce", 0.920037116}, {0, 5, "dice", 0.734425844}, {0, 5,
    "consistency", 0.0841717756}, {0, 5, "weight", 0.859514391}, {0, 5, "gradient", 2.38055999}, {0,
    6, "loss", 1.01112578}, {0, 6, "supervised", 0.934383219}, {0, 6, "ce", 1.01414577}, {0, 6,
    "dice", 0.748270603}, {0, 6, "consistency", 0.0569312357}, {0, 6, "weight", 1.34798689}, {0, 6,
    "gradient", 2.7961868}, {0, 7, "loss", 1.07367903}, {0, 7, "supervised", 0.913636674}, {0, 7,
    "ce", 0.987936183}, {0, 7, "dice", 0.740271153}, {0, 7, "consistency", 0.0836654603}, {0, 7,
    "weight", 1.91288445}, {0, 7, "gradient", 3.23446724}, {0, 8, "loss", 1.07328504}, {0, 8,
    "supervised", 0.887821499}, {0, 8, "ce", 0.952392164}, {0, 8, "dice", 0.737156615}, {0, 8,
    "consistency", 0.0755085584}, {0, 8, "weight", 2.45619226}, {0, 8, "gradient", 3.4075149}, {0,
    9, "loss", 1.13939729}, {0, 9, "supervised", 0.89588576}, {0, 9, "ce", 0.962441881}, {0, 9,
    "dice", 0.740588143}, {0, 9, "consistency", 0.0853322097}, {0, 9, "weight", 2.85368827}, {0, 9,
    "gradient", 7.24140686}
};
static const struct golden_run golden_runs_urpc[] = {
    {.name = "urpc_two", .classes = 2, .channels = 1, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_urpc_two, .n_notes = 70, .prototypes = NULL,
     .set = {.method = (char[]){"urpc"}, .seed = 71, .steps = 10, .patch = {32, 32, 32}, .batch = 4,
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
    {.name = "urpc_three", .classes = 3, .channels = 2, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_urpc_three, .n_notes = 70, .prototypes = NULL,
     .set = {.method = (char[]){"urpc"}, .seed = 72, .steps = 10, .patch = {32, 32, 32}, .batch = 3,
             .labeled_batch = 2, .filters = 2, .dropout = NET_DROPOUT_BOTH, .augment = AUGMENT_CROP,
             .dice_share = 0.3, .optimizer = OPTIM_SGD, .schedule = SCHEDULE_POLY, .lr = 0.0001,
             .momentum = 0.9, .weight_decay = 0.1, .clip = 0.0, .ema_decay = 0.99, .consistency =
             3.0, .teacher_noise = 0.1, .ramp = RAMP_CONTINUOUS, .sup_dice = 1, .ssn_rank = 8,
             .mc_samples = 6, .ged_metric = GED_CLASS_MEAN, .head_norm = 0, .nb_rule = NB_CENTRED,
             .bcl_layout = BCL_CORRECT, .bcl_reduce = BCL_MEAN, .bcl_cap = 150, .lambda_c = 0.09,
             .bcl_tau = 0.07, .proto_ckpt = PROTO_LAST, .proto_update = 1, .lambda_r = 0.1, .pcl_tau
             = 100.0, .pcl_ignore_bg = 1, .pcl_cov = PCL_DIAGONAL, .pseudo_weight = 1.0,
             .pseudo_threshold = 0.0, .stage2_init = STAGE2_FRESH, .stage2_cov = 0, .stage2_paste =
             0, .stage2_share = 1.0, .stages = 2, .paste_warmup = 0.25, .paste_size =
             0.6666666666666666, .paste_weight = 0.5}},
};
